"""Which query a table, an input and a checkpoint belong to, so that nothing is read twice or left out.

Delta's transaction ids protect a replay within one checkpoint only. So the table carries, for each input it
was made from, the query that reads it, and the checkpoint carries the same: a start where the two differ is
refused.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass, fields

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.errors import CheckpointError
from spark_ner.sinks.delta import Table, set_property
from spark_ner.spark.location import error_class
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.source import BLOCK_BYTES, SOURCE, Source, column

FORMAT_PROPERTY = "spark_ner.format"
TABLE_FORMAT = "1"
_QUERY_PROPERTY = "spark_ner.query."
_MARKER = "spark_ner_job"
_RECOVERED = "spark_ner_recovered"
_KNOWN_SOURCE, _KNOWN_ID = "_ner_known_source", "_ner_known_id"


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What a checkpoint says of itself."""

    query_id: str
    fingerprint: str
    input: str
    output: str
    recovers: str | None = None  # the query whose rows are not to be written again


@dataclass(frozen=True, kw_only=True)
class State:
    """What was found before a start."""

    marker: Marker | None
    has_checkpoint: bool  # Spark wrote one there
    planned: int | None  # the last micro-batch that Spark planned
    ended: int | None  # the last that ended well
    recorded: str | None  # the query that the table names for this input

    @property
    def may_replay(self) -> bool:
        """Whether a micro-batch was begun and not seen to end: the table may hold it."""
        return self.planned is not None and self.planned != self.ended


def fingerprint(config: JobConfig, source: Source) -> str:
    """Names what a table's rows come from; not the model, so that an upgrade goes on where it was."""
    parts = {
        "input": source.location,
        "kind": source.kind,
        "text_unit": source.text_unit if source.kind == "text" else None,
        "text_col": config.text_col,
        "id_col": config.id_col,
        "shape": config.shape,
        "block_bytes": None if config.id_col else BLOCK_BYTES,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def query_property(mark: str) -> str:
    """The table property that names the query of this fingerprint."""
    return _QUERY_PROPERTY + mark


def new_query_id(mark: str) -> str:
    """An id that begins with the fingerprint, so that all queries of one input are known by it."""
    return f"{mark}-{uuid.uuid4().hex[:12]}"


def decide(state: State, wanted: Marker, *, checkpoint: str, recover: bool) -> Marker:
    """The marker to go on with: the checkpoint's own, or `wanted`, a new query.

    Raises:
        CheckpointError: the checkpoint is another job's, or the table's own is lost.
    """
    found, recorded = state.marker, state.recorded
    if found is None:
        if state.has_checkpoint:
            raise CheckpointError(
                f"the checkpoint {checkpoint} was not made by this job; name another by --checkpoint"
            )
        if recorded is None:
            return wanted
        if not recover:
            raise CheckpointError(
                f"{wanted.output} already holds documents of {wanted.input} (query {recorded}), but their "
                f"checkpoint is not at {checkpoint}; give its place by --checkpoint, or, if it is lost, say "
                "--recover: documents that the table has are then left out"
            )
        return Marker(**{**asdict(wanted), "recovers": recorded})
    if (found.fingerprint, found.output) != (wanted.fingerprint, wanted.output):
        raise CheckpointError(
            f"the checkpoint {checkpoint} belongs to another job, from {found.input} to {found.output}, or "
            "with other columns or shape; name another by --checkpoint"
        )
    if recorded == found.query_id:
        return found
    # A start that ended between writing the marker and naming the query in the table has read nothing yet.
    if state.planned is None and recorded in (None, found.recovers):
        return found
    if recorded is None:
        raise CheckpointError(
            f"{wanted.output} does not know the checkpoint {checkpoint}: the table was made anew. "
            "Remove the checkpoint to read everything again"
        )
    raise CheckpointError(
        f"{wanted.output} goes on from another checkpoint (query {recorded}) than {checkpoint} (query "
        f"{found.query_id}); give the other by --checkpoint, or remove this one and say --recover"
    )


def find_state(spark: SparkSession, table: Table, *, checkpoint: str, mark: str) -> State:
    """Look at the checkpoint and the table; changes nothing."""
    text = _read_text(spark, f"{checkpoint}/{_MARKER}")
    recorded = table.properties(spark).get(query_property(mark)) if table.exists(spark) else None
    return State(
        marker=_marker(text, checkpoint),
        has_checkpoint=_read_text(spark, f"{checkpoint}/metadata") is not None,
        planned=_last_number(spark, f"{checkpoint}/offsets"),
        ended=_last_number(spark, f"{checkpoint}/commits"),
        recorded=recorded,
    )


def write_marker(spark: SparkSession, checkpoint: str, marker: Marker) -> None:
    """Put the marker into the checkpoint; a half-written one counts as none."""
    _write_text(spark, f"{checkpoint}/{_MARKER}", json.dumps(asdict(marker), sort_keys=True))


def record_query(spark: SparkSession, table: Table, marker: Marker) -> None:
    """Name the query in the table's properties, unless it is named there.

    Raises:
        CheckpointError: another start of the same job was quicker.
    """
    key = query_property(marker.fingerprint)
    recorded = table.properties(spark).get(key)
    if recorded in (None, marker.recovers):
        set_property(spark, table, key, marker.query_id)
        recorded = table.properties(spark).get(key)
    if recorded != marker.query_id:
        raise CheckpointError(
            f"{table.name} was just taken over by another start of this job (query {recorded})"
        )


def is_recovering(spark: SparkSession, checkpoint: str, marker: Marker) -> bool:
    """Whether rows of earlier queries may still be met; true until a whole run has ended well."""
    return marker.recovers is not None and _read_text(spark, f"{checkpoint}/{_RECOVERED}") is None


def mark_recovered(spark: SparkSession, checkpoint: str) -> None:
    """All that the lost checkpoint had read has been met: later documents are new."""
    _write_text(spark, f"{checkpoint}/{_RECOVERED}", "done")


def without_known(
    frame: DataFrame, rows: DataFrame, marker: Marker, *, id_col: str, is_file: bool
) -> DataFrame:
    """The documents that no earlier query of this input has written, by source and id.

    A micro-batch holds whole files and is committed whole. So where ids are positions, which only the reading
    stage knows, a file that the table has is known as a whole; and so is a null id in such a file. Null ids
    of a table cannot be told apart: those documents are written again rather than lost.
    """
    earlier = rows.where(
        F.col("query_id").startswith(marker.fingerprint + "-") & (F.col("query_id") != F.lit(marker.query_id))
    )
    known = [F.col(SOURCE).alias(_KNOWN_SOURCE)]
    same = F.col(SOURCE) == F.col(_KNOWN_SOURCE)
    if id_col in frame.columns:
        known.append(column(id_col).alias(_KNOWN_ID))
        ours, theirs = column(id_col), F.col(_KNOWN_ID)
        same &= ours.eqNullSafe(theirs) if is_file else ours == theirs
    return frame.join(earlier.select(*known).distinct(), same, "left_anti")


def _marker(text: str | None, checkpoint: str) -> Marker | None:
    if text is None:
        return None
    try:
        tree = json.loads(text)
        return Marker(**{f.name: tree[f.name] for f in fields(Marker)})
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{checkpoint}/{_MARKER} is damaged; name another checkpoint") from None


def _read_text(spark: SparkSession, path: str) -> str | None:
    # Through Spark, so that it works on every file system that Spark knows.
    try:
        lines = [row["value"] for row in spark.read.text(path).collect()]
    except AnalysisException as error:
        if error_class(error).startswith("PATH_NOT_FOUND"):
            return None
        raise
    return "\n".join(lines) if lines else None


def _write_text(spark: SparkSession, path: str, text: str) -> None:
    spark.createDataFrame([(text,)], "value string").coalesce(1).write.mode("overwrite").text(path)


def _last_number(spark: SparkSession, folder: str) -> int | None:
    """The largest of the folder's files that are named by numbers, as Spark's logs are."""
    try:
        paths = spark.read.format("binaryFile").load(folder).select("path").collect()
    except AnalysisException as error:
        if error_class(error).startswith("PATH_NOT_FOUND"):
            return None
        raise
    names = [row["path"].rsplit("/", 1)[-1] for row in paths]
    return max((int(name) for name in names if name.isdigit()), default=None)
