"""What a run did, for people: the report at its end, the plan of a dry run, a table of entities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.sinks.runs import InputFile, RunRow
from spark_ner.spark.source import column

if TYPE_CHECKING:
    from spark_ner.spark.job import Job

_TEXT_WIDTH = 40


@dataclass(frozen=True)
class Report:
    """What one run did; `rows` are the rows that it added to the runs table."""

    run_id: str
    query_id: str
    output: str
    runs_table: str
    seconds: float
    rows: tuple[RunRow, ...] = ()
    rewritten: tuple[InputFile, ...] = field(default=())

    @property
    def is_new(self) -> bool:
        """Whether the run wrote documents itself, rather than found them written."""
        return any(row.documents and not row.replayed for row in self.rows)

    def total(self, name: str) -> float:
        """The sum of a column over the run's micro-batches; unknown figures count as 0."""
        return sum(getattr(row, name) or 0 for row in self.rows)

    @property
    def words_per_s(self) -> float:
        """Words by the wall clock of the whole run, start-up of Spark aside."""
        return self.total("words") / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            *self._work(),
            f"table      {self.output}",
            f"runs       {self.runs_table}",
            f"run id     {self.run_id}",
        ]
        if self.rewritten:
            lines += ["", f"warning: {rewritten_line(self.rewritten)}"]
        return "\n".join(lines)

    def _work(self) -> list[str]:
        replayed = [row for row in self.rows if row.replayed]
        lines = []
        if replayed:
            n = sum(row.documents or 0 for row in replayed)
            lines.append(
                f"replayed   {len(replayed)} micro-batch(es) that the table had: {n:,} documents, none added"
            )
        if not self.is_new:
            return [*lines, f"nothing new: no document was added in {self.seconds:.1f} s"]
        padded = self.total("padded_tokens")
        padding = 100 * (1 - self.total("tokens") / padded) if padded else 0.0
        written = [row for row in self.rows if not row.replayed]
        longest = max((row.longest_task_s or 0 for row in written), default=0.0)
        medians = sorted(row.median_task_s or 0 for row in written)
        nulls, errors, windows = self.total("nulls"), self.total("errors"), self.total("windows")
        speed = f"{self.words_per_s:,.0f} words/s"
        loads, memory = self.total("model_loads"), max((row.memory_mb or 0 for row in written), default=0.0)
        return [
            *lines,
            f"documents  {self.total('documents'):,.0f}  (null {nulls:,.0f}, failed {errors:,.0f})",
            f"words      {self.total('words'):,.0f}  in {self.seconds:.1f} s: {speed}",
            f"tokens     {self.total('tokens'):,.0f}  in {windows:,.0f} windows; padding {padding:.1f} %",
            f"entities   {self.total('entities'):,.0f}",
            f"stages     tokenize {self.total('tokenize_s'):.1f} s, model {self.total('forward_s'):.1f} s, "
            f"decode {self.total('decode_s'):.1f} s, all tasks {self.total('task_s'):.1f} s; "
            f"plan {self.total('plan_s'):.1f} s, write {self.total('write_s'):.1f} s by the clock",
            f"tasks      {self.total('n_tasks'):,.0f} in {len(written)} micro-batch(es); "
            f"longest {longest:.1f} s, median {medians[len(medians) // 2]:.1f} s",
            f"workers    {loads:.0f} model load(s), at most {memory:.0f} MB each",
        ]


def plan_lines(spark: SparkSession, job: Job) -> list[str]:
    """What a run would do; the numbers of tasks and micro-batches are estimates from the input's size."""
    config, source, pace, ref = job.config, job.source, job.pace, job.shipped.ref
    n_files, n_bytes = source.size(spark)
    characters = n_bytes * source.text_share
    batch = pace.characters_per_s * pace.slots * 60 * config.batch_minutes
    task = pace.characters_per_s * config.task_seconds
    limits = ", ".join(
        f"{k} {v}" for k, v in source.limits(batch, spark.version).items() if k != "maxFileAge"
    )
    n_batches = max(1, math.ceil(characters / batch)) if config.mode == "incremental" else 1
    n_tasks = max(pace.slots, math.ceil(characters / task / n_batches))
    there = "is there" if job.table_is_there else "will be made"
    id_from = config.id_col or "file and position"
    lines = [
        f"input      {source.location} ({source.kind}): {n_files:,} file(s), {n_bytes:,} bytes, read or not",
        f"columns    text {config.text_col}, id {id_from}, keep {', '.join(config.keep) or 'none'}",
        f"model      {config.model} {ref.variant} (digest {ref.digest[:12]}) on {job.shipped.spec.device}",
        f"batch      {job.shipped.spec.batch_tokens:,} tokens a model call",
        f"splits     about {n_tasks:,} task(s) of at most {config.task_seconds:.0f} s on {pace.slots} "
        f"slot(s) at {pace.characters_per_s:,.0f} characters/s each",
        f"batches    about {n_batches:,} micro-batch(es) of {config.batch_minutes:g} minutes ({limits})"
        if config.mode == "incremental"
        else "batches    one transaction",
        f"table      {job.table.name} ({config.shape}), which {there}: {job.schema.simpleString()}",
        f"runs       {job.runs.name}",
    ]
    if job.marker is not None and job.state is not None:
        begun = "goes on with" if job.state.marker == job.marker else "begins"
        lines.append(f"checkpoint {job.checkpoint}: {begun} query {job.marker.query_id}")
    return [*lines, "dry run: nothing was written"]


def rewritten_line(files: Sequence[InputFile]) -> str:
    """One sentence on files whose size or time changed after they were read."""
    shown = ", ".join(f.path for f in files[:3]) + (", …" if len(files) > 3 else "")
    return (
        f"{len(files)} file(s) changed after they were read, and were not read again: {shown}. "
        "Give new contents a new name"
    )


def entity_lines(rows: DataFrame, *, id_col: str, shape: str, limit: int) -> list[str]:
    """The first entities of the table, aligned, one a line, in the order of document and place."""
    if shape == "nested":
        rows = rows.select(column(id_col).alias("id"), F.explode("entities").alias("e")).select("id", "e.*")
    else:
        rows = rows.where("label is not null").select(
            column(id_col).alias("id"), "start", "end", "text", "label", "score"
        )
    found = rows.orderBy("id", "start").limit(limit).collect()
    lines = [("document", "label", "entity", "start", "end", "score")]
    lines += [
        (str(r["id"]), r["label"], _one_line(r["text"]), str(r["start"]), str(r["end"]), f"{r['score']:.2f}")
        for r in found
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(6)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TEXT_WIDTH else flat[: _TEXT_WIDTH - 1] + "…"
