"""The runs table: one row a micro-batch, with what it read, found and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


@dataclass(frozen=True)
class InputFile:
    """One file as it was read; a later size or time at the same path means that it was rewritten."""

    path: str
    bytes: int
    modified_ms: int  # since 1970, UTC


FILE_TYPE = StructType(
    [
        StructField("path", StringType()),
        StructField("bytes", LongType()),
        StructField("modified_ms", LongType()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One row. None means not known: a replayed batch was counted from the table, not measured."""

    run_id: str
    query_id: str
    batch_id: int | None
    fingerprint: str
    mode: str
    started: datetime
    finished: datetime
    replayed: bool = False
    documents: int | None = None
    characters: int | None = None
    windows: int | None = None
    tokens: int | None = None
    padded_tokens: int | None = None
    words: int | None = None
    entities: int | None = None
    nulls: int | None = None
    errors: int | None = None
    padding_share: float | None = None
    seconds: float | None = None  # the micro-batch, wall clock
    plan_s: float | None = None  # reading lengths, dealing splits
    write_s: float | None = None  # reading, model and commit, wall clock
    tokenize_s: float | None = None  # these four are sums over tasks
    forward_s: float | None = None
    decode_s: float | None = None
    task_s: float | None = None
    words_per_s: float | None = None  # of the micro-batch, wall clock
    n_tasks: int | None = None
    longest_task_s: float | None = None
    median_task_s: float | None = None
    memory_mb: float | None = None  # the largest Python worker
    gpu_busy_share: float | None = None
    model_loads: int | None = None
    materialized: int | None = None
    batch_tokens: int
    device: str
    model: str
    model_digest: str
    variant: str
    package_version: str
    files: tuple[InputFile, ...] | None = None
    rewritten: tuple[InputFile, ...] = field(default=())


_LONGS = (
    *("batch_id", "documents", "characters", "windows", "tokens", "padded_tokens", "words", "entities"),
    *("nulls", "errors", "n_tasks", "model_loads", "materialized", "batch_tokens"),
)
_DOUBLES = (
    *("padding_share", "seconds", "plan_s", "write_s", "tokenize_s", "forward_s", "decode_s", "task_s"),
    *("words_per_s", "longest_task_s", "median_task_s", "memory_mb", "gpu_busy_share"),
)
_OTHER: Mapping[str, DataType] = {
    "started": TimestampType(),
    "finished": TimestampType(),
    "replayed": BooleanType(),
    "files": ArrayType(FILE_TYPE),
    "rewritten": ArrayType(FILE_TYPE),
}


def _type_of(name: str) -> DataType:
    if name in _LONGS:
        return LongType()
    return DoubleType() if name in _DOUBLES else _OTHER.get(name, StringType())


# Bounds of the columns that rows are looked up by, not of all: they cost more than the row itself.
RUNS_PROPERTIES: Mapping[str, str] = {"delta.dataSkippingNumIndexedCols": "4"}
RUNS_SCHEMA = StructType([StructField(name, _type_of(name)) for name in RunRow.__dataclass_fields__])


def row_values(row: RunRow) -> tuple[object, ...]:
    """The row in the order of `RUNS_SCHEMA`, nested files as tuples."""
    values = asdict(row)
    for name in ("files", "rewritten"):
        entries = getattr(row, name)
        values[name] = None if entries is None else [(f.path, f.bytes, f.modified_ms) for f in entries]
    return tuple(values[name] for name in RUNS_SCHEMA.names)
