"""Delta tables, written exactly once.

Every append carries a transaction id (`txnAppId`, `txnVersion`), so that Delta itself drops the second of two
equal ones, and a note in the commit's `userMetadata`, by which a commit is found again. Delta drops a write
without a word, also one whose version is merely lower than another's: so the commit is looked for in the
history afterwards.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_ner.errors import CommitError, ConfigError, PathError, SchemaError, SetupError
from spark_ner.spark.location import looks_like_table, qualified

ATTEMPTS = 8
# In Python these are no family, whatever the first one's name says.
_CONFLICTS = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
RECENT_COMMITS = 64
_UNSAFE_SCHEMES = ("s3", "s3a", "s3n")
_PLAIN_VALUE = re.compile(r"^[\w.:-]+$")
_TUNING: tuple[Mapping[str, str], ...] = (
    {"delta.autoOptimize.optimizeWrite": "true", "delta.targetFileSize": "128mb"},
    {"delta.autoOptimize.optimizeWrite": "true"},  # open-source Delta knows no target file size
    {},
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a commit says of itself: which micro-batch it holds, and which attempt wrote it."""

    query_id: str
    batch_id: int
    run_id: str
    attempt: str
    model_digest: str
    fingerprint: str
    input_digest: str
    documents: int
    characters: int

    def to_json(self) -> str:
        """The `userMetadata` of the commit."""
        return json.dumps({"spark_ner": asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | None) -> Note | None:
        """The note in a commit's `userMetadata`; None where there is none of ours."""
        try:
            tree = json.loads(text or "")["spark_ner"]
            return cls(**{f.name: tree[f.name] for f in fields(cls)})
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Table:
    """A Delta table by path or by name."""

    name: str
    is_path: bool

    @classmethod
    def parse(cls, text: str) -> Table:
        """`a`, `a.b` or `a.b.c` is a table's name, all else a path, made absolute where it is local."""
        if looks_like_table(text):
            return cls(text, False)
        return cls(qualified(text), True)

    def beside(self, suffix: str) -> str:
        """A neighbor: the same path or name with a suffix."""
        return self.name + suffix

    def exists(self, spark: SparkSession) -> bool:
        """Whether there is a Delta table; PathError where something else is in its place."""
        if not self.is_path:
            return bool(spark.catalog.tableExists(self.name))
        if DeltaTable.isDeltaTable(spark, self.name):
            return True
        local = Path(re.sub(r"^file:/*", "/", self.name))
        # A killed creation leaves an empty log, which is no obstacle.
        if local.is_file() or (local.is_dir() and any(p.name != "_delta_log" for p in local.iterdir())):
            raise PathError(f"{self.name} is there and is no Delta table; name another output")
        return False

    def handle(self, spark: SparkSession) -> DeltaTable:
        """Delta's own object for it."""
        return DeltaTable.forPath(spark, self.name) if self.is_path else DeltaTable.forName(spark, self.name)

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows."""
        return spark.read.format("delta").load(self.name) if self.is_path else spark.read.table(self.name)

    def properties(self, spark: SparkSession) -> dict[str, str]:
        """Its table properties."""
        # Not `detail()`: that adds up all files of the table, only to be thrown away here.
        return {
            row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {self.sql_name()}").collect()
        }

    def sql_name(self) -> str:
        """Its name in SQL, quoted."""
        parts = ["delta", self.name] if self.is_path else self.name.split(".")
        return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def create(
    spark: SparkSession,
    table: Table,
    schema: StructType,
    *,
    properties: Mapping[str, str],
    tuned: bool = True,
) -> None:
    """Make the table with its columns and properties in one commit; no error if another writer was first.

    `tuned` asks for large files, which a table of few rows has no use for.
    """
    for tuning in _TUNING if tuned else ({},):
        builder = DeltaTable.createIfNotExists(spark).addColumns(schema)
        builder = builder.location(table.name) if table.is_path else builder.tableName(table.name)
        for key, value in {**tuning, **properties}.items():
            builder = builder.property(key, value)
        try:
            builder.execute()
            return
        except PySparkException as error:
            if "DELTA_UNKNOWN_CONFIGURATION" in str(error):
                continue
            # Two first writers at once: one makes the table, and the other goes on with it.
            if not table.exists(spark):
                raise
            return


def set_property(spark: SparkSession, table: Table, key: str, value: str) -> None:
    """Set one property of a table that is there; repeated while other writers are in the way.

    Delta has no call for it and its parser takes no parameters here, so the statement is put together: the
    name is quoted, and key and value can hold nothing that would end a string.
    """
    for text in (key, value):
        if not _PLAIN_VALUE.match(text):
            raise ConfigError(f"{text!r} cannot be a table property")
    for attempt in range(ATTEMPTS):
        try:
            spark.sql(f"ALTER TABLE {table.sql_name()} SET TBLPROPERTIES ('{key}' = '{value}')")
            return
        except _CONFLICTS:
            if attempt == ATTEMPTS - 1:
                raise


def check_schema(existing: StructType, wanted: StructType, table: Table) -> None:
    """Refuse to write other columns than the table has; order and nullability aside.

    Raises:
        SchemaError: shows both sides.
    """
    have = {f.name: f.dataType.simpleString() for f in existing.fields}
    want = {f.name: f.dataType.simpleString() for f in wanted.fields}
    if have == want:
        return
    faults = [
        f"{n}: the table has {have.get(n, 'no such column')}, the job writes {want.get(n, 'no such column')}"
        for n in dict.fromkeys([*want, *have])
        if have.get(n) != want.get(n)
    ]
    raise SchemaError(
        f"{table.name} has other columns than this job writes. {'; '.join(faults)}. "
        f"Table: {existing.simpleString()}. Job: {wanted.simpleString()}"
    )


def check_store(spark: SparkSession, table: Table, *, single_writer: bool) -> None:
    """Refuse S3 without a log store that keeps two clusters from writing the same commit.

    Raises:
        SetupError: says which setting makes it safe, and which says that there is one writer.
    """
    scheme = table.name.split(":", 1)[0] if table.is_path and ":" in table.name else ""
    if scheme not in _UNSAFE_SCHEMES or single_writer:
        return
    managed = spark.conf.get("spark.databricks.clusterUsageTags.clusterId", None)
    if managed or spark.conf.get(f"spark.delta.logStore.{scheme}.impl", None):
        return
    raise SetupError(
        f"{table.name}: on {scheme} two clusters can overwrite each other's commits; set "
        f"spark.delta.logStore.{scheme}.impl (io.delta.storage.S3DynamoDBLogStore), or say "
        "--set single_writer=true if no other cluster writes this table"
    )


def find_commit(
    spark: SparkSession, table: Table, *, query_id: str, batch_id: int, recent: bool = False
) -> Note | None:
    """The note of the commit that holds this micro-batch; `recent` looks at the last commits only."""
    for limit in (RECENT_COMMITS,) if recent else (1, RECENT_COMMITS, None):  # most often it is the newest
        handle = table.handle(spark)
        history = handle.history(limit) if limit else handle.history()
        for row in history.select("userMetadata").where("userMetadata is not null").collect():
            note = Note.from_json(row["userMetadata"])
            if note and (note.query_id, note.batch_id) == (query_id, batch_id):
                return note
    return None


def append(frame: DataFrame, table: Table, note: Note) -> None:
    """Append under the note's transaction id; Delta drops it silently if it has that one or a higher."""
    for attempt in range(ATTEMPTS):
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("txnAppId", note.query_id)
            .option("txnVersion", note.batch_id)
            .option("userMetadata", note.to_json())
        )
        try:
            if table.is_path:
                writer.save(table.name)
            else:
                writer.saveAsTable(table.name)
            return
        except _CONFLICTS as error:
            # Appends do not conflict with appends, but a change of the table's properties does: nothing was
            # committed, so writing again is safe.
            if attempt == ATTEMPTS - 1:
                raise
            _log.warning("%s changed while it was written (%s): again", table.name, type(error).__name__)
        except AnalysisException as error:
            if "DELTA_METADATA_MISMATCH" in str(error) or "DELTA_FAILED_TO_MERGE_FIELDS" in str(error):
                check_schema(table.read(frame.sparkSession).schema, frame.schema, table)
            raise


def append_once(frame: DataFrame, table: Table, note: Note) -> Note:
    """Append a micro-batch unless the table has it, and prove that it has it then.

    Returns:
        The note of the commit that holds the micro-batch: equal to `note` if this call wrote it, else of
        whoever did. Then Delta skipped this write, and what observes `frame` may never hear of it.

    Raises:
        CommitError: Delta skipped the write, and the micro-batch is not in the table either: a later one was
            written under the same id, so the counter was set back.
    """
    append(frame, table, note)
    found = find_commit(frame.sparkSession, table, query_id=note.query_id, batch_id=note.batch_id)
    if found is None:
        raise CommitError(
            f"Delta skipped batch {note.batch_id} of query {note.query_id}: {table.name} holds a later "
            "batch of that query, but not this one. The checkpoint was set back; no row was written"
        )
    return found
