"""The columns that entity recognition reads and adds, as Spark and as Arrow types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_ner.config import did_you_mean
from spark_ner.errors import ColumnError

ENTITIES = "entities"
NER_ERROR = "ner_error"

ENTITY = StructType(
    [
        StructField("start", IntegerType()),
        StructField("end", IntegerType()),
        StructField("text", StringType()),
        StructField("label", StringType()),
        StructField("score", FloatType()),
    ]
)
ENTITIES_SPARK = ArrayType(ENTITY)
ANNOTATION = StructType([StructField(ENTITIES, ENTITIES_SPARK), StructField(NER_ERROR, StringType())])

_COUNTS = (
    *("documents", "windows", "tokens", "padded_tokens", "words", "entities", "nulls", "errors"),
    *("model_loads", "materialized"),
)
_MEASURES = ("tokenize_s", "forward_s", "decode_s", "task_s", "memory_mb")

# What one task did; a column of it is null on all rows but the task's last. `memory_mb` is the worker's peak.
STATS_ARROW = pa.struct([(n, pa.int64()) for n in _COUNTS] + [(n, pa.float64()) for n in _MEASURES])
STATS_SPARK = StructType(
    [StructField(n, LongType()) for n in _COUNTS] + [StructField(n, DoubleType()) for n in _MEASURES]
)


def annotated_schema(schema: StructType, *, text_col: str, stats_col: str | None = None) -> StructType:
    """The table's columns, then `entities`, `ner_error` and, where named, the task's figures.

    Raises:
        ColumnError: see `check_text_column`; or the figures' column is in the table already.
    """
    check_text_column(schema, text_col)
    fields = [*schema.fields, *ANNOTATION.fields]
    if stats_col is not None:
        _check_free(schema, stats_col)
        fields.append(StructField(stats_col, STATS_SPARK))
    return StructType(fields)


def missing_column(name: str, names: Sequence[str], *, place: str) -> ColumnError:
    """The error for a column that is not there: names those that are, and the nearest."""
    return ColumnError(
        f'column "{name}" not found; the {place} has: {", ".join(names)}{did_you_mean(name, names)}'
    )


def check_text_column(schema: StructType, text_col: str) -> None:
    """Refuse a table that cannot be annotated, before any job starts.

    Raises:
        ColumnError: the text column is missing or no text, a name is used twice, or a result's name is taken.
    """
    names = schema.names
    if text_col not in names:
        raise missing_column(text_col, names, place="table")
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ColumnError(
            f"column names are used more than once: {', '.join(twice)}; rename or drop them first"
        )
    kind: DataType = schema[text_col].dataType
    if not isinstance(kind, (StringType, BinaryType)):
        raise ColumnError(
            f'column "{text_col}" is {kind.simpleString()}; text is wanted (string, or UTF-8 in binary)'
        )
    for name in (ENTITIES, NER_ERROR):
        _check_free(schema, name)


def _check_free(schema: StructType, name: str) -> None:
    if name in schema.names:
        raise ColumnError(f'the table already has a column "{name}"; rename or drop it first')
