"""The job: documents in, a Delta table of entities out; behind `spark-ner annotate` and spark-submit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows
from pyspark.sql.types import StructType

from spark_ner.errors import ColumnError, ConfigError
from spark_ner.sinks.delta import Table, check_schema, check_store, create
from spark_ner.sinks.runs import RUNS_PROPERTIES, RUNS_SCHEMA, InputFile
from spark_ner.spark import lineage
from spark_ner.spark.lineage import Marker
from spark_ner.spark.location import qualified
from spark_ner.spark.microbatch import (
    Arrival,
    Hooks,
    MicroBatches,
    Target,
    append_run,
    output_schema,
    run_row,
)
from spark_ner.spark.pace import Pace, measured_pace
from spark_ner.spark.report import Report, rewritten_line
from spark_ner.spark.schema import check_text_column
from spark_ner.spark.session import check_classic
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.ship import Shipped, ship
from spark_ner.spark.source import DOCUMENT_ID, READ_CONF, Source, file_states, open_source
from spark_ner.spark.split import measure

_log = logging.getLogger(__name__)

_SHOWN_REWRITTEN = 1_000


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that was checked and can start; nothing has been written."""

    config: JobConfig
    source: Source
    shipped: Shipped
    table: Table
    runs: Table
    checkpoint: str
    fingerprint: str
    schema: StructType
    table_is_there: bool
    pace: Pace
    marker: Marker | None  # incremental: the query to go on with, or to begin
    state: lineage.State | None


def prepare(spark: SparkSession, config: JobConfig) -> Job:
    """Open the input, ship the model, look at output and checkpoint: faults of the call are found here.

    Raises:
        UserError: see its children; nothing was written.
    """
    check_classic(spark)
    table = Table.parse(config.output)
    runs = (
        Table.parse(config.runs_table) if config.runs_table else Table(table.beside("_runs"), table.is_path)
    )
    if config.mode == "incremental" and config.checkpoint is None and not table.is_path:
        raise ConfigError(f"{table.name} is a table's name: say where its checkpoint is by --checkpoint")
    check_store(spark, table, single_writer=config.single_writer)
    shipped = ship(spark, config.model, spec=config.engine)
    with reading(spark):
        source = open_source(spark, config)
        read = source.read(spark).schema
    _check_columns(config, read)
    schema = output_schema(config, read)
    is_there = table.exists(spark)
    if is_there:
        check_schema(table.read(spark).schema, schema, table)
    if runs.exists(spark):
        check_schema(runs.read(spark).schema, RUNS_SCHEMA, runs)
    checkpoint = qualified(config.checkpoint or table.beside("_checkpoint"))
    mark = lineage.fingerprint(config, source)
    state = marker = None
    if config.mode == "incremental":
        state = lineage.find_state(spark, table, checkpoint=checkpoint, mark=mark)
        new = Marker(
            query_id=lineage.new_query_id(mark), fingerprint=mark, input=source.location, output=table.name
        )
        marker = lineage.decide(state, new, checkpoint=checkpoint, recover=config.recover)
    return Job(
        config=config,
        source=source,
        shipped=shipped,
        table=table,
        runs=runs,
        checkpoint=checkpoint,
        fingerprint=mark,
        schema=schema,
        table_is_there=is_there,
        pace=measured_pace(spark, config, shipped, runs=runs, characters=source.characters),
        marker=marker,
        state=state,
    )


def run(spark: SparkSession, config: JobConfig, *, hooks: Hooks = Hooks()) -> Report:  # noqa: B008 - frozen
    """Annotate what is new (or, in mode once, everything) and append it to the output, exactly once.

    Args:
        spark: a classic session with Delta.
        config: the job.
        hooks: what to call on the way.

    Raises:
        UserError: a fault of the call, found before anything was written.
        CommitError: the table does not show what was written.
    """
    began = time.perf_counter()
    job = prepare(spark, config)
    with reading(spark):
        runner = _Run(spark, job, hooks)
        runner.once() if config.mode == "once" else runner.incremental()
    return Report(
        run_id=runner.target.run_id,
        query_id=runner.target.query_id,
        output=job.table.name,
        runs_table=job.runs.name,
        seconds=time.perf_counter() - began,
        rows=tuple(runner.batches.rows) if runner.batches else (),
        rewritten=runner.rewritten,
    )


class _Run:
    """One run of a job in one of its two modes."""

    def __init__(self, spark: SparkSession, job: Job, hooks: Hooks) -> None:
        self.rewritten: tuple[InputFile, ...] = ()
        self.batches: MicroBatches | None = None
        self._spark, self._job, self._hooks = spark, job, hooks
        self._started = hooks.clock()
        run_id = job.config.run_id or f"{self._started:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
        query_id = job.marker.query_id if job.marker else ""
        self.target = Target(
            table=job.table, runs=job.runs, fingerprint=job.fingerprint, query_id=query_id, run_id=run_id
        )

    def incremental(self) -> None:
        """From where the last run ended."""
        job, marker, state = self._job, self._job.marker, self._job.state
        if marker is None or state is None:
            raise RuntimeError("an incremental job has a marker")
        # First the marker, then the table's property, then the stream. A kill after the first leaves a marker
        # that the table does not know, and no planned micro-batch: the next start goes on with it. A kill
        # after the second leaves both. The other order would leave a table that refuses every start.
        if state.marker != marker:
            lineage.write_marker(self._spark, job.checkpoint, marker)
            self._hooks.on_step("marker written")
        self._create_tables({lineage.query_property(job.fingerprint): marker.query_id})
        if state.recorded != marker.query_id:
            lineage.record_query(self._spark, job.table, marker)
        self._hooks.on_step("query recorded")
        self.rewritten, unreported = self._find_rewritten()
        recovers = marker if lineage.is_recovering(self._spark, job.checkpoint, marker) else None
        self._stream(recovers, unreported)
        if recovers is not None:
            # The whole input was met once under this query, so later documents are new.
            lineage.mark_recovered(self._spark, job.checkpoint)
        if unreported and self.batches is not None and not self.batches.rows:
            self._report_rewritten(unreported)

    def once(self) -> None:
        """All documents in one transaction, unless the table has this run."""
        job = self._job
        frame = job.source.read(self._spark)
        measured = measure(frame, job.config.text_col)
        run_id = job.config.run_id or f"{measured.contents}-{job.shipped.ref.digest[:8]}"
        # Not one of the ids of `lineage.new_query_id`: an incremental job does not recover from these rows.
        query_id = f"once-{job.fingerprint}-{run_id}"
        self.target = replace(self.target, run_id=run_id, query_id=query_id)
        self._create_tables({})
        self.batches = self._micro_batches()
        arrival = Arrival(may_be_known=job.table_is_there, measured=measured, same_input=False)
        self.batches.write(frame, 0, arrival)

    def _stream(self, recovers: Marker | None, rewritten: tuple[InputFile, ...]) -> None:
        job = self._job
        batches = self.batches = self._micro_batches()
        may_be_known = job.state is not None and job.state.may_replay
        failures: list[BaseException] = []

        def write(frame: DataFrame, batch_id: int) -> None:
            first = not batches.rows
            try:
                arrival = Arrival(
                    may_be_known=may_be_known and first,
                    recovers=recovers,
                    is_file=job.source.kind != "delta",
                    rewritten=rewritten if first else (),
                )
                batches.write(frame, batch_id, arrival)
            except BaseException as error:
                # Spark hands on the text alone, and only an Exception: at another, its JVM would wait for
                # ever.
                failures.append(error)
                raise RuntimeError("the micro-batch failed") from error

        characters = job.pace.characters_per_s * job.pace.slots * job.config.batch_minutes * 60
        stream = job.source.stream(self._spark, batch_characters=characters)
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", job.checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if failures:
                raise failures[0] from None
            if "DELTA_SOURCE" in str(error) and "CHANGE" in str(error):
                raise ConfigError(
                    f"{job.source.location} had rows changed or removed since it was read; "
                    "--set read_options.skipChangeCommits=true goes on past such commits"
                ) from None
            raise
        finally:
            query.stop()

    def _micro_batches(self) -> MicroBatches:
        job = self._job
        return MicroBatches(job.config, self.target, job.shipped, pace=job.pace, hooks=self._hooks)

    def _create_tables(self, properties: dict[str, str]) -> None:
        job = self._job
        if not job.table_is_there:
            kind = {lineage.FORMAT_PROPERTY: lineage.TABLE_FORMAT}
            create(self._spark, job.table, job.schema, properties={**kind, **properties})
            # Another writer may have made it first, with other columns.
            check_schema(job.table.read(self._spark).schema, job.schema, job.table)
            self._hooks.on_step("table created")
        if not job.runs.exists(self._spark):
            kind = {lineage.FORMAT_PROPERTY: lineage.TABLE_FORMAT}
            create(self._spark, job.runs, RUNS_SCHEMA, properties={**kind, **RUNS_PROPERTIES}, tuned=False)
            self._hooks.on_step("runs table created")

    def _find_rewritten(self) -> tuple[tuple[InputFile, ...], tuple[InputFile, ...]]:
        """Files whose size or time changed since they were read: all, and those that no run has reported."""
        job = self._job
        if job.source.kind == "delta" or job.state is None or job.state.planned is None:
            return (), ()
        rows = job.runs.read(self._spark).where(F.col("fingerprint") == job.fingerprint)
        read = rows.select("finished", F.explode("files").alias("f")).select("finished", "f.*")
        last = read.groupBy("path").agg(F.max_by(F.struct("bytes", "modified_ms"), "finished").alias("was"))
        now = file_states(self._spark, job.source)
        changed = now.join(last, "path").where(
            (F.col("bytes") != F.col("was.bytes")) | (F.col("modified_ms") != F.col("was.modified_ms"))
        )
        found = (
            changed.select("path", "bytes", "modified_ms").orderBy("path").limit(_SHOWN_REWRITTEN).collect()
        )
        files = tuple(InputFile(*row) for row in found)
        if not files:
            return (), ()
        _log.warning("%s", rewritten_line(files))
        reported = {tuple(r) for r in rows.select(F.explode("rewritten").alias("f")).select("f.*").collect()}
        return files, tuple(f for f in files if (f.path, f.bytes, f.modified_ms) not in reported)

    def _report_rewritten(self, files: tuple[InputFile, ...]) -> None:
        """A run that met no new document says in the runs table which files changed, once."""
        row = run_row(
            self._job.config,
            self._job.shipped,
            self.target,
            batch_id=None,
            replayed=False,
            started=self._started,
            finished=self._hooks.clock(),
            measures={"documents": 0},
        )
        append_run(self._spark, self._job.runs, replace(row, rewritten=files), note=None)


@contextmanager
def reading(spark: SparkSession) -> Iterator[None]:
    """Files are cut at the same places in every run; the session's own settings come back at the end."""
    before = {key: spark.conf.get(key, None) for key in READ_CONF}
    for key, value in READ_CONF.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def _check_columns(config: JobConfig, read: StructType) -> None:
    check_text_column(read, config.text_col)
    written = set(output_schema(replace(config, id_col=None, keep=()), read).names)
    if config.id_col:
        written.discard(DOCUMENT_ID)
    for name in dict.fromkeys([*([config.id_col] if config.id_col else []), *config.keep]):
        if name in written:
            raise ColumnError(
                f'column "{name}" has the name of one that the job writes; rename it, or leave it out'
            )
