"""Where documents are: paths, patterns and names, and what files are there. Contents are not read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.errors import ConfigError, PathError

Kind = Literal["parquet", "json", "csv", "text", "delta"]

KINDS: Mapping[str, Kind] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".text": "text",
}
COMPRESSED = r"(?:\.(?:gz|bz2|zst|zstd|snappy|lz4|deflate))?"
SUFFIX = re.compile(rf"(\.\w+){COMPRESSED}$", re.IGNORECASE)
_TABLE_NAME = re.compile(r"^[^\W\d][\w-]*(\.[\w-]+){0,2}$")
GLOB = frozenset("*?[]{}\\")
_LISTING_OPTIONS = ("recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter")


def qualified(path: str) -> str:
    """A local path made absolute, so that it names the same place from every directory; a URI as it is."""
    if re.match(r"^[A-Za-z][\w+.-]*:", path):
        return path.rstrip("/")
    return os.path.abspath(path)


def looks_like_table(name: str) -> bool:
    """Whether a name is that of a table (`a`, `a.b`, `a.b.c`) and no file or folder has it."""
    return bool(_TABLE_NAME.match(name)) and not os.path.exists(name)


def error_class(error: AnalysisException) -> str:
    """Spark's name for the error, in 3.5 and 4.x."""
    get = getattr(error, "getCondition", None) or error.getErrorClass
    return str(get() or "")


def files_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """Spark's listing of a location; the options that choose files are heeded."""
    wanted = {k: v for k, v in options.items() if k in _LISTING_OPTIONS}
    return spark.read.format("binaryFile").options(**wanted).load(location)


class Listing(NamedTuple):
    """What a location holds."""

    files: int
    bytes: int
    first: str
    suffixes: tuple[str, ...]


def list_files(spark: SparkSession, location: str, options: Mapping[str, str]) -> Listing:
    """Count and measure the files; PathError where there are none."""
    try:
        files = files_frame(spark, location, options).select("_metadata.*")
    except AnalysisException as error:
        if error_class(error).startswith("PATH_NOT_FOUND"):
            raise PathError(f"input not found: {location}") from None
        raise
    suffix = F.lower(F.regexp_extract("file_path", rf"(?i)(\.\w+){COMPRESSED}$", 1))
    row = files.agg(
        F.count(F.lit(1)).alias("files"),
        F.sum("file_size").alias("bytes"),
        F.min("file_path").alias("first"),
        F.collect_set(suffix).alias("suffixes"),
    ).first()
    if row is None or not row["files"]:
        raise PathError(
            f"no files in {location}; files in folders below it count with read_options.recursiveFileLookup"
        )
    return Listing(row["files"], row["bytes"], row["first"], tuple(sorted(row["suffixes"])))


def guess_kind(name: str, suffixes: tuple[str, ...]) -> Kind:
    """The format by the location's own ending, else by its files'; ConfigError where these do not agree."""
    own = SUFFIX.search(name)
    if own and own[1].lower() in KINDS:
        return KINDS[own[1].lower()]
    kinds = {KINDS.get(suffix) for suffix in suffixes}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        shown = ", ".join(s or "none" for s in suffixes[:8])
        raise ConfigError(
            f"the format of {name} is not clear (file endings: {shown}); "
            "say --format parquet, json, csv, text or delta"
        )
    return kind


def as_glob(path: str) -> str:
    """One file as a pattern: the stream reader takes a folder or a pattern, but not a file's plain path."""
    escaped = "".join("\\" + c if c in GLOB else c for c in path[:-1])
    return f"{escaped}[{path[-1]}]"


def last_part(path: str) -> str:
    """The name at the end of a path."""
    return path.rsplit("/", 1)[-1]
