"""Labeled sets in Spark tables: text with an array of spans, or arrays of tokens and tags.

The one module of the training that imports pyspark, and only when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_ner.config import did_you_mean
from spark_ner.errors import ConfigError, TrainingDataError
from spark_ner.train.bad_rows import BadRows
from spark_ner.train.corpus import Corpus, Fields, not_empty, rows_to_labeled
from spark_ner.train.data import Document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def load_table(spark: SparkSession, corpus: Corpus, *, bad: BadRows | None = None) -> list[Document]:
    """Documents of a set in a table, with our labels: a row is a document of one sentence.

    They come to the driver partition by partition, sorted by the id column where the set names one; without
    it their order is that of the table's files.

    Args:
        spark: the session.
        corpus: a set of the format "table".
        bad: collects the rows that cannot be read; None raises at the first.

    Raises:
        TrainingDataError: the table is not there, its columns do not fit, a row is bad, or none is good.
    """
    frame = read_table(spark, corpus)
    texts = rows_to_labeled(_rows(frame, corpus), corpus, bad=bad)
    return not_empty(corpus, [(text,) for text in texts], bad)


def read_table(spark: SparkSession, corpus: Corpus) -> DataFrame:
    """The columns that the set names, of a table or of a Delta or Parquet path; no job runs.

    Raises:
        TrainingDataError: see `load_table`; bad rows are not looked for.
    """
    from spark_ner.spark.source import column

    if corpus.format != "table":
        raise ConfigError(f'set {corpus.name!r}: format = "table" was wanted, got {corpus.format!r}')
    frame = _open(spark, corpus.files[0])
    _check_columns(frame.schema, corpus)
    fields = corpus.fields
    frame = frame.select(*map(column, dict.fromkeys((*fields.names, *((fields.id,) if fields.id else ())))))
    return frame.orderBy(column(fields.id)) if fields.id else frame


def _open(spark: SparkSession, name: str) -> DataFrame:
    from delta.tables import DeltaTable
    from pyspark.errors import AnalysisException

    from spark_ner.spark.location import error_class, looks_like_table, qualified

    if looks_like_table(name) and spark.catalog.tableExists(name):
        return spark.read.table(name)
    path = qualified(name)
    kind = "delta" if DeltaTable.isDeltaTable(spark, path) else "parquet"
    try:
        return spark.read.format(kind).load(path)
    except AnalysisException as error:
        if error_class(error).startswith(("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")):
            raise TrainingDataError(
                f"labelled data not found: {name} is no table, and no Delta or Parquet path"
            ) from None
        raise


def _check_columns(schema: StructType, corpus: Corpus) -> None:
    """Refuse a table that cannot be read, before any job starts."""
    fields, table = corpus.fields, f"table {corpus.files[0]}"
    for name in (*fields.names, *((fields.id,) if fields.id else ())):
        if name not in schema.names:
            raise TrainingDataError(
                f'{table}: column "{name}" not found; the table has: {", ".join(schema.names)}'
                f"{did_you_mean(name, schema.names)}"
            )
    wanted = dict.fromkeys(fields.names, "array<string>")
    if not fields.tokens:
        spans = f"array<struct<{fields.start}:int,{fields.end}:int,{fields.label}:string>>"
        wanted = {fields.text: "string", fields.spans: spans}
    for name, text in wanted.items():
        kind = schema[name].dataType
        if not _fits(kind, name, fields):
            raise TrainingDataError(f'{table}: column "{name}" is {kind.simpleString()}; {text} was wanted')


def _fits(kind: DataType, name: str, fields: Fields) -> bool:
    from pyspark.sql.types import ArrayType, IntegralType, StringType, StructType

    if not fields.tokens and name == fields.text:
        return isinstance(kind, StringType)
    if not isinstance(kind, ArrayType):
        return False
    item = kind.elementType
    if fields.tokens:
        return isinstance(item, StringType)
    wanted = {fields.start: IntegralType, fields.end: IntegralType, fields.label: StringType}
    return isinstance(item, StructType) and all(
        part in item.names and isinstance(item[part].dataType, of) for part, of in wanted.items()
    )


def _rows(frame: DataFrame, corpus: Corpus) -> Iterator[tuple[str, object]]:
    for number, row in enumerate(frame.toLocalIterator(), 1):
        yield f"table {corpus.files[0]}, row {number}", row.asDict(recursive=True)
