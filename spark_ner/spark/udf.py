"""Entities in DataFrames and SQL by a scalar function: only the text crosses to Python.

The functions are deterministic, so that Spark pushes filters on other columns below them (a partition filter
through a view still prunes). The price: Spark may evaluate such a function again for each place that names
its result, so `WHERE size(ner(text)) > 0` runs the model twice. `annotate` and `ner_once` are safe from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.errors import ConfigError, SetupError
from spark_ner.spark import worker
from spark_ner.spark.schema import ANNOTATION, ENTITIES_SPARK, check_text_column
from spark_ner.spark.ship import Shipped, shipped_model
from spark_ner.spark.transform import SLICE_BYTES, annotated, sliced
from spark_ner.types import Entities

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Function = Literal["ner", "redact"]
ColumnFunction = Callable[["Column | str"], "Column"]

_RETURNS: dict[str, DataType | str] = {"ner": ENTITIES_SPARK, "redact": "string", "annotation": ANNOTATION}


def annotate(
    df: DataFrame, text_col: str = "text", *, model: str | Path | Shipped = "default", **settings: object
) -> DataFrame:
    """All columns of `df`, and `entities` and `ner_error`; the model runs once a row, whatever follows.

    Null text gives null entities; empty text gives `[]`; a row that cannot be processed gives null entities
    and one sentence in `ner_error`, never its text. Over Connect the server can write a row of any size; one
    that is collected must fit a message (128 MB, some million entities).

    Args:
        df: any table, batch or streaming, of a classic or a Connect session.
        text_col: its column of text.
        model: a shipped model's name, a directory, `fake`, or what `ship` returned.
        settings: fields of `EngineSpec`.

    Raises:
        ColumnError: the text column is missing or no text, or a result's name is taken.
        ConfigError, PathError, BundleError: settings or model cannot be used.
    """
    check_text_column(df.schema, text_col)
    function = _column_function("annotation", shipped_model(df.sparkSession, model, settings))
    text = F.col("`" + text_col.replace("`", "``") + "`")
    # A generator, not a plain column: Spark copies a deterministic function into each filter that names it,
    # and never copies a generator. Filters on other columns still pass below it.
    return df.select("*", F.inline(F.array(function(text))))


def ner_udf(
    model: str | Path | Shipped = "default", *, spark: SparkSession | None = None, **settings: object
) -> ColumnFunction:
    """A function of a text column that gives its entities: `df.select(ner("text"))`.

    A row that cannot be processed gives null; `annotate` tells why.

    Raises:
        SetupError: no session is active and none is given.
        ConfigError, PathError, BundleError: settings or model cannot be used.
    """
    return _column_function("ner", shipped_model(spark or active_session(), model, settings))


def register(
    spark: SparkSession,
    name: str = "ner",
    *,
    model: str | Path | Shipped = "default",
    function: Function = "ner",
    **settings: object,
) -> None:
    """Make `SELECT ner(text)` or, with `function="redact"`, `SELECT redact(text)` work in the session's SQL.

    `redact` gives the text with each entity replaced by `[LABEL]`; null for null and for a row that fails.
    Before Spark 4.1 text that may not be UTF-8 must be given as `ner(CAST(text AS BINARY))`.

    Raises:
        ConfigError, PathError, BundleError: function, settings or model cannot be used.
    """
    if function not in ("ner", "redact"):
        raise ConfigError(f"function {function!r} is not one of 'ner', 'redact'")
    spark.udf.register(name, _spark_function(function, shipped_model(spark, model, settings)))


def ner_once(result: Column) -> Column:
    """The same result from a function that runs once a row, whatever filters name it.

    Use it in `select`, where it becomes a generator: `select("id", ner_once(ner("text")).alias("entities"))`.
    In SQL: `SELECT id, entities FROM docs LATERAL VIEW explode(array(ner(text))) AS entities`.
    """
    return F.explode(F.array(result))


def redacted(texts: Iterable[str | None], entities: Entities) -> pa.StringArray:
    """Each text with its entities replaced by `[LABEL]`; null where the text is null or its row failed."""
    starts, ends, labels = entities.start.tolist(), entities.end.tolist(), entities.label.tolist()
    bounds = entities.offsets.tolist()
    rows: list[str | None] = []
    for row, text in enumerate(texts):
        if text is None or not entities.valid[row]:
            rows.append(None)
            continue
        parts, at = [], 0
        for i in range(bounds[row], bounds[row + 1]):
            parts += [text[at : starts[i]], f"[{entities.labels[labels[i]]}]"]
            at = ends[i]
        rows.append("".join([*parts, text[at:]]))
    return pa.array(rows, pa.string())


def active_session() -> SparkSession:
    """The thread's session, classic or Connect; SetupError where there is none."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise SetupError("no Spark session is active; make one first, or pass spark=")
    return session


def _column_function(what: str, shipped: Shipped) -> ColumnFunction:
    function = _spark_function(what, shipped)
    if hasattr(F, "arrow_udf"):
        return function

    def of_bytes(text: Column | str) -> Column:
        # pandas would fail the task on a string that is not UTF-8; bytes reach `text_array`, which mends it.
        column = F.col(text) if isinstance(text, str) else text
        return function(column.cast("string").cast("binary"))

    return of_bytes


def _spark_function(what: str, shipped: Shipped) -> ColumnFunction:
    """The Spark function; its pickle holds names and a small reference, never a model."""
    if not hasattr(F, "arrow_udf"):
        return _pandas_function(what, shipped)

    def annotate_text(texts: Iterator[pa.Array[Any]]) -> Iterator[pa.Array[Any]]:
        return results(texts, what, shipped)

    # Spark reads the kind of function off the hints, which must be classes, not their names.
    hint = Iterator[pa.Array]  # type: ignore[type-arg]
    annotate_text.__annotations__ = {"texts": hint, "return": hint}
    annotate_text.__name__ = what  # what a plan shows
    return cast(ColumnFunction, F.arrow_udf(annotate_text, _RETURNS[what]))


def _pandas_function(what: str, shipped: Shipped) -> ColumnFunction:
    """The same for Spark before 4.1, where pandas stands between Arrow and the function."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf  # type: ignore[attr-defined]

    def annotate_text(texts: Iterator[pd.Series[Any]]) -> Iterator[Any]:
        arrays = (pa.array(series, from_pandas=True) for series in texts)
        return map(_to_pandas, results(arrays, what, shipped))

    returned = Iterator[pd.DataFrame] if what == "annotation" else Iterator[pd.Series]
    annotate_text.__annotations__ = {"texts": Iterator[pd.Series], "return": returned}
    annotate_text.__name__ = what
    return cast(ColumnFunction, pandas_udf(annotate_text, _RETURNS[what]))


def results(texts: Iterable[pa.Array[Any]], what: str, shipped: Shipped) -> Iterator[pa.Array[Any]]:
    """In a worker: the function's values, in slices of the input's arrays; lengths add up to the input's."""
    batches = (pa.RecordBatch.from_arrays([array], names=["text"]) for array in texts)
    slices = sliced(batches, "text", SLICE_BYTES)
    if (first := next(slices, None)) is None:
        return  # a task without rows loads no model
    for _, text, entities in annotated(chain([first], slices), "text", worker.engine_for(shipped)):
        if what == "ner":
            yield entities.to_arrow()
        elif what == "redact":
            yield redacted(text.to_pylist(), entities)
        else:
            columns = [entities.to_arrow(), entities.errors_to_arrow()]
            yield pa.StructArray.from_arrays(columns, names=ANNOTATION.names)


def _to_pandas(values: pa.Array[Any]) -> Any:
    """Object Series of lists or None (an ArrowDtype one fails on a null); a frame of them for a struct."""
    import pandas as pd

    if isinstance(values, pa.StructArray):
        return pd.DataFrame({n: _to_pandas(values.field(n)) for n in ANNOTATION.names})
    return pd.Series(values.to_pylist(), dtype="object")
