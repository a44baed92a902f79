"""The documents: five formats, read at once or as a stream, in one shape.

Both readings give the same columns: the user's (text, id, those to keep) and the internal ones below, which
say where a row came from. Blocks of a file are cut at fixed places (`READ_CONF`), so a position names the
same row in every run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows
from pyspark.sql.types import StringType, StructField, StructType

from spark_ner.errors import ConfigError, PathError
from spark_ner.spark.location import (
    COMPRESSED,
    GLOB,
    KINDS,
    SUFFIX,
    Kind,
    as_glob,
    error_class,
    files_frame,
    guess_kind,
    last_part,
    list_files,
    looks_like_table,
    qualified,
)
from spark_ner.spark.schema import missing_column
from spark_ner.spark.settings import JobConfig

SOURCE = "document_source"  # kept in the table: the file, or the name of the table or query
BLOCK = "_ner_block"  # where the row's block starts in its file
ROW = "_ner_row"  # row number in the file, where the format knows it
BYTES = "_ner_bytes"
MODIFIED = "_ner_modified_ms"
MALFORMED = "_ner_malformed"  # the record could not be parsed
_CORRUPT = "_ner_corrupt"
DOCUMENT_ID = "document_id"

BLOCK_BYTES = 32 << 20

# A split of a file then depends on the file alone. Never change these: ids of documents without an id column
# depend on them.
READ_CONF: Mapping[str, str] = {
    "spark.sql.files.maxPartitionBytes": str(BLOCK_BYTES),
    "spark.sql.files.openCostInBytes": str(4 << 20),
    "spark.sql.files.minPartitionNum": "1",
}

# Text in a file, over the file's bytes: for sizing micro-batches before anything was read.
_TEXT_SHARE: Mapping[Kind, float] = {"parquet": 2.5, "delta": 2.5, "json": 1.0, "csv": 1.0, "text": 1.0}
_MAX_FILES = 100_000
_LIMITS = frozenset({"maxFilesPerTrigger", "maxBytesPerTrigger"})
_NO_AGE_LIMIT = "36500d"  # Spark skips files 7 days older than the newest without a word


@dataclass(frozen=True, kw_only=True)
class Source:
    """An input that was found and whose columns were checked."""

    kind: Kind
    location: str  # absolute where it is a local path
    is_table: bool = False
    schema: StructType | None = None  # None: the format brings it (Delta)
    options: Mapping[str, str] = field(default_factory=dict)
    text_unit: Literal["file", "line"] = "file"
    n_files: int = 0
    n_bytes: int = 0
    is_single_file: bool = False
    columns: tuple[str, ...] = ()  # the user's, to be read

    @property
    def named_by_position(self) -> bool:
        """Whether rows have a position that never changes; a Delta table rewrites its files."""
        return self.kind != "delta"

    @property
    def text_share(self) -> float:
        """Characters of text to expect, over the bytes of the files."""
        return _TEXT_SHARE[self.kind]

    @property
    def characters(self) -> float | None:
        """Characters to expect; None where that takes a look at a table."""
        return None if self.kind == "delta" else self.n_bytes * self.text_share

    def size(self, spark: SparkSession) -> tuple[int, int]:
        """Files and bytes."""
        if self.kind != "delta":
            return self.n_files, self.n_bytes
        from delta.tables import DeltaTable

        table = DeltaTable.forName if self.is_table else DeltaTable.forPath
        row = table(spark, self.location).detail().select("numFiles", "sizeInBytes").first()
        return (row["numFiles"], row["sizeInBytes"]) if row is not None else (0, 0)

    def read(self, spark: SparkSession) -> DataFrame:
        """All documents, at once."""
        reader = spark.read.format(self.kind).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        frame = reader.table(self.location) if self.is_table else reader.load(self.location)
        return self._shaped(frame)

    def stream(self, spark: SparkSession, *, batch_characters: float) -> DataFrame:
        """The documents as a stream whose micro-batches hold about so many characters; whole files each."""
        reader = spark.readStream.format(self.kind)
        limits = self.limits(batch_characters, spark.version)
        if _LIMITS & set(self.options):  # the caller's own; Spark takes no two of them
            limits = {k: v for k, v in limits.items() if k not in _LIMITS}
        reader = reader.options(**{**limits, **self.options})
        if self.schema is not None:
            reader = reader.schema(self.schema)
        if self.is_table:
            return self._shaped(reader.table(self.location))
        return self._shaped(reader.load(as_glob(self.location) if self.is_single_file else self.location))

    def limits(self, batch_characters: float, spark_version: str) -> dict[str, str]:
        """Reader options that bound a micro-batch; Spark's file source takes files or bytes, not both."""
        n_bytes = max(1, int(batch_characters / self.text_share))
        if self.kind == "delta":
            return {"maxBytesPerTrigger": str(n_bytes), "maxFilesPerTrigger": str(_MAX_FILES)}
        mean = max(1, self.n_bytes // max(1, self.n_files))
        age = {"maxFileAge": _NO_AGE_LIMIT}
        if int(spark_version.split(".")[0]) >= 4 and n_bytes // mean < _MAX_FILES:
            return {"maxBytesPerTrigger": str(n_bytes), **age}
        return {"maxFilesPerTrigger": str(min(_MAX_FILES, max(1, n_bytes // mean))), **age}

    def _shaped(self, frame: DataFrame) -> DataFrame:
        """The user's columns and where each row came from."""
        users = [column(name) for name in self.columns]
        if self.kind == "delta":
            nowhere = [F.lit(None).cast("bigint").alias(name) for name in (BYTES, MODIFIED)]
            return frame.select(F.lit(self.location).alias(SOURCE), *nowhere, *users)
        if self.kind == "text":
            users = [F.col("value").alias(self.columns[0]), *users[1:]]
        return frame.select(
            F.col("_metadata.file_path").alias(SOURCE),
            F.col("_metadata.file_size").alias(BYTES),
            F.unix_millis("_metadata.file_modification_time").alias(MODIFIED),
            *self._position(),
            *users,
        )

    def _position(self) -> list[Column]:
        if self.kind == "parquet":
            return [F.col("_metadata.row_index").alias(ROW)]
        if self.kind == "text" and self.text_unit == "file":
            return []
        block = F.col("_metadata.file_block_start").alias(BLOCK)
        if self.kind == "text":
            return [block]
        return [block, F.col(_CORRUPT).isNotNull().alias(MALFORMED)]


def open_source(spark: SparkSession, config: JobConfig) -> Source:
    """Find the input, its format and its columns; every fault of the call is a UserError before any job.

    Raises:
        PathError: nothing there, or an empty directory.
        ConfigError: the format is not clear, or positions cannot name the documents.
        ColumnError: a column is missing (names what is there) or has a wrong type.
    """
    if _is_table(spark, config):
        return _checked(spark, Source(kind="delta", location=config.input, is_table=True), config)
    location = qualified(config.input)
    if config.format in ("auto", "delta") and _is_delta(spark, location):
        return _checked(spark, Source(kind="delta", location=location), config)
    if config.format == "delta":
        raise PathError(f"no Delta table at {config.input}")
    listing = list_files(spark, location, config.read_options)
    kind = config.format if config.format != "auto" else guess_kind(config.input, listing.suffixes)
    found = Source(
        kind=kind,
        location=location,
        options=_options(kind, config),
        text_unit=config.text_unit,
        n_files=listing.files,
        n_bytes=listing.bytes,
        is_single_file=listing.files == 1 and last_part(unquote(listing.first)) == last_part(location),
    )
    return _checked(spark, found, config)


def file_states(spark: SparkSession, source: Source) -> DataFrame:
    """Each file of the input as it is now: `path`, `bytes`, `modified_ms`. Contents are not read."""
    return files_frame(spark, source.location, source.options).select(
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_size").alias("bytes"),
        F.unix_millis("_metadata.file_modification_time").alias("modified_ms"),
    )


def column(name: str) -> Column:
    """A top-level column by its very name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")


def _is_table(spark: SparkSession, config: JobConfig) -> bool:
    if config.format not in ("auto", "delta") or not looks_like_table(config.input):
        return False
    suffix = SUFFIX.search(config.input)
    if suffix and suffix[1].lower() in KINDS:
        return False
    if spark.catalog.tableExists(config.input):
        return True
    if config.format == "delta":
        raise PathError(f"no table named {config.input}")
    return False


def _is_delta(spark: SparkSession, location: str) -> bool:
    from delta.tables import DeltaTable

    return not (set(location) & GLOB) and bool(DeltaTable.isDeltaTable(spark, location))


def _options(kind: Kind, config: JobConfig) -> dict[str, str]:
    """Reader options: documents hold line breaks and quotes, so CSV is read as RFC 4180 has it.

    Only that Spark gives CRLF inside a quoted field as LF: offsets are those of the text as Spark reads it.
    """
    options: dict[str, str] = {}
    if kind == "csv":
        options = {"header": "true", "multiLine": "true", "escape": '"'}
        if re.search(rf"\.tsv{COMPRESSED}$", config.input, re.IGNORECASE):
            options["sep"] = "\t"
    if kind in ("csv", "json"):
        options["columnNameOfCorruptRecord"] = _CORRUPT
    if kind == "text":
        options["wholetext"] = str(config.text_unit == "file").lower()
    return {**options, **config.read_options}


def _checked(spark: SparkSession, source: Source, config: JobConfig) -> Source:
    """The source with its schema and the columns to read."""
    schema = _schema(spark, source, config)
    text_col, names = config.text_col, [n for n in schema.names if n != _CORRUPT]
    if source.kind == "text":
        names = [text_col, *(n for n in names if n != "value")]
    wanted = list(dict.fromkeys([text_col, *([config.id_col] if config.id_col else []), *config.keep]))
    for name in wanted:
        if name not in names:
            raise missing_column(name, names, place="input")
    if config.id_col is None and not source.named_by_position:
        raise ConfigError(
            "the rows of a Delta table have no position that stays; "
            f"name the documents by --id-col ({', '.join(names)})"
        )
    if source.kind in ("json", "csv"):
        fields = [f for f in schema.fields if f.name != _CORRUPT]
        schema = StructType([*fields, StructField(_CORRUPT, StringType())])
    kept = schema if source.kind != "delta" else None
    return replace(source, schema=kept, columns=tuple(wanted))


def _schema(spark: SparkSession, source: Source, config: JobConfig) -> StructType:
    reader: DataFrameReader = spark.read.format(source.kind).options(**source.options)
    if config.schema is not None and source.kind in ("json", "csv"):
        try:
            return spark.createDataFrame([], config.schema).schema
        except PySparkException as error:
            raise ConfigError(f"schema {config.schema!r} is not DDL: {type(error).__name__}") from None
    try:
        if source.is_table:
            return spark.read.table(source.location).schema
        return reader.load(source.location).schema
    except AnalysisException as error:
        if error_class(error).startswith("UNABLE_TO_INFER_SCHEMA"):
            raise PathError(f"no {source.kind} records in {source.location}") from None
        raise
