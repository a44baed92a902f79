"""A table with text in it -> the same table with its entities: Arrow in, Arrow out, in the rows' order.

Spark hands a task an iterator of record batches. They are cut into slices of bounded size, the engine reads
ahead over the slices (so that no batch of windows is short because an Arrow batch ended), and each slice
leaves with its results as soon as they are there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from spark_ner.engine import Engine
from spark_ner.engine.text import decoded
from spark_ner.errors import ColumnError
from spark_ner.spark import worker
from spark_ner.spark.schema import ENTITIES, NER_ERROR, STATS_ARROW, annotated_schema
from spark_ner.spark.ship import Shipped
from spark_ner.types import Entities

SLICE_BYTES = 4 << 20


def annotate_frame(
    df: DataFrame,
    shipped: Shipped,
    *,
    text_col: str = "text",
    stats_col: str | None = None,
    slice_bytes: int = SLICE_BYTES,
) -> DataFrame:
    """All columns of `df`, untouched, and `entities` and `ner_error`; one output row an input row, in order.

    Args:
        df: any table with a string column (or binary that holds UTF-8).
        shipped: what `ship` returned.
        text_col: the column with the text; null gives null entities.
        stats_col: also add a column of the task's figures, null on all rows but the last of each task.
        slice_bytes: text held together, about; a longer document is a slice of its own.

    Raises:
        ColumnError: the text column is missing or no text, or a result's name is taken.
    """
    schema = annotated_schema(df.schema, text_col=text_col, stats_col=stats_col)
    layout = Layout(tuple(df.columns), text_col, stats_col, slice_bytes)

    def annotate_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return annotate_batches(batches, shipped, layout)

    return df.mapInArrow(annotate_partition, schema)


@dataclass(frozen=True)
class Layout:
    """Which columns go through, and under which names results join them."""

    columns: tuple[str, ...]
    text_col: str
    stats_col: str | None = None
    slice_bytes: int = SLICE_BYTES


def annotate_batches(
    batches: Iterable[pa.RecordBatch], shipped: Shipped, layout: Layout
) -> Iterator[pa.RecordBatch]:
    """What one task does. A task without rows ends at once and loads no model."""
    slices = sliced(batches, layout.text_col, layout.slice_bytes)
    first = next(slices, None)
    if first is None:
        return
    meter = Meter(shipped)
    last: pa.RecordBatch | None = None  # held back, for only the end of the input shows which row is the last
    for rows, _, entities in annotated(chain([first], slices), layout.text_col, meter.engine):
        if last is not None:
            yield last
        last = _with_results(rows, entities, layout)
    if last is not None:
        yield last if layout.stats_col is None else _with_stats(last, meter.reading())


def annotated(
    slices: Iterable[pa.RecordBatch], text_col: str, engine: Engine
) -> Iterator[tuple[pa.RecordBatch, pa.StringArray, Entities]]:
    """Each slice with its text and its entities, in order; holds only slices the engine has read ahead."""
    waiting: deque[tuple[pa.RecordBatch, pa.StringArray]] = deque()

    def texts() -> Iterator[pa.StringArray]:
        for rows in slices:
            waiting.append((rows, text_array(rows.column(text_col))))
            yield waiting[-1][1]

    for entities in engine.annotate_stream(texts()):
        yield *waiting.popleft(), entities


def sliced(batches: Iterable[pa.RecordBatch], text_col: str, slice_bytes: int) -> Iterator[pa.RecordBatch]:
    """Zero-copy slices of `slice_bytes` of text at most, or one row; Spark 3.5 itself bounds rows only."""
    for batch in batches:
        ends = np.cumsum(_n_bytes(batch.column(text_col)))
        low = 0
        while low < batch.num_rows:
            budget = slice_bytes + (ends[low - 1] if low else 0)
            high = max(low + 1, int(np.searchsorted(ends, budget, side="right")))
            yield batch.slice(low, high - low)
            low = high


def text_array(column: pa.Array[Any]) -> pa.StringArray:
    """The column as UTF-8; each unit that is not text (a bad byte, a lone surrogate) counts as one U+FFFD.

    Raises:
        ColumnError: the column holds neither strings nor bytes.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_dictionary(kind):
        return text_array(column.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ColumnError(f"text is wanted (string, or UTF-8 in binary), got a column of {kind}")
    try:
        return cast(pa.StringArray, column.cast(pa.string()))  # checks that it is UTF-8
    except pa.ArrowInvalid:
        return pa.array([None if raw is None else decoded(raw) for raw in column.to_pylist()], pa.string())


class Meter:
    """What a task did: the differences of the process's counters between its start and its end."""

    def __init__(self, shipped: Shipped) -> None:
        self._began_s, self._counters = time.perf_counter(), asdict(worker.COUNTERS)
        self.engine = worker.engine_for(shipped)
        self._stats = self.engine.stats.snapshot()

    def reading(self) -> dict[str, float]:
        """One value a field of the figures' column."""
        stats, counters = self.engine.stats.snapshot(), asdict(worker.COUNTERS)
        return {
            **{name: value - self._stats[name] for name, value in stats.items()},
            **{name: value - self._counters[name] for name, value in counters.items()},
            "task_s": time.perf_counter() - self._began_s,
            "memory_mb": worker.memory_peak_mb(),
        }


def _with_results(rows: pa.RecordBatch, entities: Entities, layout: Layout) -> pa.RecordBatch:
    # By name: Spark matches the columns of a batch by position, so the order must be the declared one.
    columns = {name: rows.column(name) for name in layout.columns}
    columns |= {ENTITIES: entities.to_arrow(), NER_ERROR: entities.errors_to_arrow()}
    if layout.stats_col is not None:
        columns[layout.stats_col] = pa.nulls(rows.num_rows, STATS_ARROW)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _with_stats(rows: pa.RecordBatch, reading: dict[str, float]) -> pa.RecordBatch:
    figures = pa.array([*[None] * (rows.num_rows - 1), reading], STATS_ARROW)
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], figures], names=rows.schema.names)


def _n_bytes(column: pa.Array[Any]) -> NDArray[np.int64]:
    """Bytes of each value; 0 for a null, and for a kind of column that `text_array` will refuse."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not isinstance(column, (pa.StringArray, pa.LargeStringArray, pa.BinaryArray, pa.LargeBinaryArray)):
        return np.zeros(len(column), np.int64)
    sizes = cast("pa.Int64Array", pc.binary_length(column))
    return np.asarray(sizes.fill_null(0), np.int64)
