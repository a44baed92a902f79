"""One micro-batch: documents in, a commit of entities, a commit of figures. Safe to run again at any point.

The order is what makes it so: 1. look whether the table has this micro-batch: then the model is spared; 2.
write the entities: one commit, whose transaction id makes a second write of the same micro-batch a no-op; 3.
prove by the history that the commit is there, and whose it is; 4. write its row of the runs table under the
same transaction id; 5. return: only now does Spark log the micro-batch as done in the checkpoint. Killed
before 2 is over: nothing is in the table, the micro-batch comes again. Killed after it: it comes again, 1
finds it, and the row of 4 is derived from the table. Killed after 4: both writes are found there.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_ner import __version__
from spark_ner.errors import CommitError
from spark_ner.sinks.delta import Note, Table, append, append_once, find_commit
from spark_ner.sinks.runs import RUNS_SCHEMA, InputFile, RunRow, row_values
from spark_ner.spark.figures import STATS, figures, observed_columns
from spark_ner.spark.lineage import Marker, without_known
from spark_ner.spark.pace import Pace
from spark_ner.spark.schema import ENTITIES, ENTITIES_SPARK, ENTITY, NER_ERROR
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.ship import Shipped
from spark_ner.spark.source import DOCUMENT_ID, MALFORMED, SOURCE, column
from spark_ner.spark.split import Measured, Split, dealt, measure, split
from spark_ner.spark.transform import annotate_frame

BATCH_ID, QUERY_ID, RUN_ID = "batch_id", "query_id", "run_id"
MALFORMED_REASON = "the record could not be parsed"

_log = logging.getLogger(__name__)

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The clock of a run that is given no other."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a run writes, and what it writes of itself on each row."""

    table: Table
    runs: Table
    fingerprint: str
    query_id: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What a run calls on its way: its clock, each row of the runs table, each point that a kill may hit."""

    clock: Clock = utc_now
    on_row: Callable[[RunRow], None] = lambda row: None
    on_step: Callable[[str], None] = lambda step: None


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """How a micro-batch comes in.

    Attributes:
        may_be_known: look for its commit before running the model; if it is there all the same, the model
        runs
            in vain and nothing is written twice.
        recovers: leave out what earlier queries of this input have written.
        is_file: whether `document_source` is a file, committed as a whole.
        rewritten: files to report in this micro-batch's row.
        measured: what `measure` found of the frame, where the caller knows.
        same_input: refuse a commit under this id that was made from other input.
    """

    may_be_known: bool = False
    recovers: Marker | None = None
    is_file: bool = True
    rewritten: tuple[InputFile, ...] = ()
    measured: Measured | None = None
    same_input: bool = True


def id_column(config: JobConfig) -> str:
    """The name of the id in the table: the user's, or `document_id`."""
    return config.id_col or DOCUMENT_ID


def output_schema(config: JobConfig, read: StructType) -> StructType:
    """The table's columns, for an input read with the columns `read`."""
    id_col = id_column(config)
    users = [id_col, *(name for name in config.keep if name != id_col)]
    fields = [read[name] if name in read.names else StructField(name, StringType()) for name in users]
    found = ENTITY.fields if config.shape == "exploded" else [StructField(ENTITIES, ENTITIES_SPARK)]
    return StructType(
        [
            *(StructField(f.name, f.dataType) for f in fields),
            StructField(SOURCE, StringType()),
            *found,
            StructField(NER_ERROR, StringType()),
            StructField(BATCH_ID, LongType()),
            StructField(QUERY_ID, StringType()),
            StructField(RUN_ID, StringType()),
        ]
    )


class MicroBatches:
    """Writes the micro-batches of one run; remembers the rows that it added to the runs table."""

    def __init__(
        self,
        config: JobConfig,
        target: Target,
        shipped: Shipped,
        *,
        pace: Pace,
        hooks: Hooks,
    ) -> None:
        self.rows: list[RunRow] = []
        self._config, self._target, self._shipped, self._pace = config, target, shipped, pace
        self._hooks = hooks

    def write(self, frame: DataFrame, batch_id: int, arrival: Arrival) -> RunRow:
        """Annotate the frame and commit it; see the module for the order.

        Args:
            frame: documents in the shape that `source` gives them.
            batch_id: counts up within the query; the transaction's version.
            arrival: how it comes in.

        Raises:
            CommitError: the table holds another micro-batch under this id, or none after a reported success.
        """
        started, began = self._hooks.clock(), time.perf_counter()
        spark, target, config = frame.sparkSession, self._target, self._config
        found = None
        if arrival.may_be_known:
            found = find_commit(spark, target.table, query_id=target.query_id, batch_id=batch_id)
        measured = arrival.measured
        if arrival.recovers is not None:  # also of a replay, whose input must come out the same
            rows, id_col = target.table.read(spark), id_column(config)
            frame = without_known(frame, rows, arrival.recovers, id_col=id_col, is_file=arrival.is_file)
            measured = None
        measured = measured or measure(frame, config.text_col)
        note = self._note(batch_id, measured)
        plan_s = time.perf_counter() - began
        observed: Mapping[str, object] | None = None
        if found is None:
            rows, observation = self._annotated(frame, batch_id, self.split(measured))
            found = append_once(rows, target.table, note)
            self._hooks.on_step("entities committed")
            # Where another attempt's commit was there, Delta ran nothing: observing would wait for ever.
            observed = observation.get if found.attempt == note.attempt else None
        if arrival.same_input:
            _check_same_input(found, note, target.table)
        measures = self._measures(spark, found) if observed is None else figures(observed)
        row = self._row(found, measures, replayed=observed is None, started=started)
        seconds = time.perf_counter() - began
        words = row.words if observed is not None else None
        row = replace(
            row,
            documents=found.documents,
            characters=found.characters,
            files=measured.files,
            rewritten=arrival.rewritten,
            seconds=seconds,
            plan_s=plan_s,
            write_s=seconds - plan_s if observed is not None else None,
            words_per_s=words / seconds if words is not None and seconds else None,
        )
        append_run(spark, target.runs, row, note=replace(note, attempt=uuid.uuid4().hex))
        self._hooks.on_step("run committed")
        self.rows.append(row)
        self._hooks.on_row(row)
        return row

    def split(self, measured: Measured) -> Split:
        """How this run deals a micro-batch of this size."""
        task_characters = self._pace.characters_per_s * self._config.task_seconds
        return split(measured, slots=self._pace.slots, task_characters=task_characters)

    def _annotated(self, frame: DataFrame, batch_id: int, chosen: Split) -> tuple[DataFrame, Observation]:
        config, target, id_col = self._config, self._target, id_column(self._config)
        rows = dealt(frame, chosen, text_col=config.text_col, id_col=id_col)
        rows = annotate_frame(rows, self._shipped, text_col=config.text_col, stats_col=STATS)
        observation = Observation()
        has_malformed = MALFORMED in rows.columns
        # Observed while each task's last row still has its figures: before rows are exploded or dropped.
        rows = rows.observe(observation, *observed_columns(with_malformed=has_malformed))
        if has_malformed:
            bad = F.col(MALFORMED)
            reason = F.when(bad, F.lit(MALFORMED_REASON)).otherwise(F.col(NER_ERROR))
            rows = rows.withColumn(NER_ERROR, reason)
            rows = rows.withColumn(ENTITIES, F.when(~bad, F.col(ENTITIES)))
        users = [column(name) for name in dict.fromkeys([id_col, *config.keep])]
        return rows.select(
            *users,
            F.col(SOURCE),
            *([F.col(ENTITIES)] if config.shape == "nested" else []),
            F.col(NER_ERROR),
            F.lit(batch_id).cast("bigint").alias(BATCH_ID),
            F.lit(target.query_id).alias(QUERY_ID),
            F.lit(target.run_id).alias(RUN_ID),
            *([_exploded()] if config.shape == "exploded" else []),
        ), observation

    def _note(self, batch_id: int, measured: Measured) -> Note:
        target = self._target
        return Note(
            query_id=target.query_id,
            batch_id=batch_id,
            run_id=target.run_id,
            attempt=uuid.uuid4().hex,
            model_digest=self._shipped.ref.digest,
            fingerprint=target.fingerprint,
            input_digest=measured.digest,
            documents=measured.documents,
            characters=measured.characters,
        )

    def _measures(self, spark: SparkSession, found: Note) -> dict[str, int | float | None]:
        """What the table's rows still tell of a micro-batch; tokens and seconds are lost."""
        rows = self._target.table.read(spark).where(
            (F.col(QUERY_ID) == found.query_id) & (F.col(BATCH_ID) == found.batch_id)
        )
        failed = F.count(F.col(NER_ERROR))
        if self._config.shape == "exploded":
            counts = [F.count(F.col("label")).alias("entities"), failed.alias("errors")]
        else:
            nulls = F.count(F.when(F.col(ENTITIES).isNull() & F.col(NER_ERROR).isNull(), 1))
            size = F.sum(F.when(F.col(ENTITIES).isNotNull(), F.size(ENTITIES)).otherwise(0))
            counts = [size.alias("entities"), failed.alias("errors"), nulls.alias("nulls")]
        row = rows.agg(*counts).first()
        return {name: row[name] or 0 for name in row.asDict()} if row is not None else {}

    def _row(
        self, found: Note, measures: Mapping[str, int | float | None], *, replayed: bool, started: datetime
    ) -> RunRow:
        return run_row(
            self._config,
            self._shipped,
            replace(self._target, run_id=found.run_id),
            batch_id=found.batch_id,
            replayed=replayed,
            started=started,
            finished=self._hooks.clock(),
            measures=measures,
        )


def run_row(  # noqa: PLR0913 - a row has many columns
    config: JobConfig,
    shipped: Shipped,
    target: Target,
    *,
    batch_id: int | None,
    replayed: bool,
    started: datetime,
    finished: datetime,
    measures: Mapping[str, int | float | None],
) -> RunRow:
    """A row of the runs table with what is known of the run, and these measures by column name."""
    return RunRow(
        run_id=target.run_id,
        query_id=target.query_id,
        batch_id=batch_id,
        fingerprint=target.fingerprint,
        mode=config.mode,
        started=started,
        finished=finished,
        replayed=replayed,
        batch_tokens=shipped.spec.batch_tokens,
        device=shipped.spec.device,
        model=config.model,
        model_digest=shipped.ref.digest,
        variant=shipped.ref.variant,
        package_version=__version__,
        **measures,  # type: ignore[arg-type]
    )


def append_run(spark: SparkSession, runs: Table, row: RunRow, *, note: Note | None) -> None:
    """Append one row to the runs table; with a note only once, however often it is called."""
    frame = spark.createDataFrame([row_values(row)], RUNS_SCHEMA).coalesce(1)
    if note is not None:
        append(frame, runs, note)
        return
    writer = frame.write.format("delta").mode("append")
    writer.save(runs.name) if runs.is_path else writer.saveAsTable(runs.name)


def _check_same_input(found: Note, note: Note, table: Table) -> None:
    if found.input_digest != note.input_digest:
        raise CommitError(
            f"{table.name} holds batch {note.batch_id} of query {note.query_id}, made from other files "
            f"({found.documents} documents) than are read now ({note.documents}): the checkpoint was set back"
            ". Remove it and say --recover"
        )


def _exploded() -> Column:
    """One row an entity, one without entity for a document that failed; none for a document without any."""
    none = F.array(F.lit(None).cast(ENTITY))
    found = F.coalesce(F.when(F.col(NER_ERROR).isNotNull(), none), F.col(ENTITIES))
    return F.inline(found)
