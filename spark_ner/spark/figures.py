"""What tasks did, summed on the way to the table: no accumulator, no second pass; works on Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.spark.source import MALFORMED

STATS = "_ner_stats"

_COUNTS = (
    *("documents", "windows", "tokens", "padded_tokens", "words", "entities", "nulls", "errors"),
    *("model_loads", "materialized"),
)
_SECONDS = ("tokenize_s", "forward_s", "decode_s", "task_s")


def observed_columns(*, with_malformed: bool) -> list[Column]:
    """Aggregates over the figures' column, which is null on all rows but the last of each task."""
    stat = {name: F.col(f"{STATS}.{name}") for name in (*_COUNTS, *_SECONDS, "memory_mb")}
    columns = [F.sum(stat[name]).alias(name) for name in (*_COUNTS, *_SECONDS)]
    columns += [
        F.max(stat["memory_mb"]).alias("memory_mb"),
        F.max(stat["task_s"]).alias("longest_task_s"),
        F.percentile(stat["task_s"], F.lit(0.5)).alias("median_task_s"),
        F.count(F.col(STATS)).alias("n_tasks"),
    ]
    if with_malformed:
        columns.append(F.sum(F.col(MALFORMED).cast("bigint")).alias("malformed"))
    return columns


def figures(observed: Mapping[str, object]) -> dict[str, int | float | None]:
    """Observed values by the names of the runs table; counts of a micro-batch without rows are 0."""
    numbers = {name: _number(value) for name, value in observed.items()}
    counts: dict[str, int | float | None] = {
        name: int(numbers.get(name) or 0) for name in (*_COUNTS, "n_tasks")
    }
    # A record that could not be parsed reached the engine as a null text.
    malformed = int(numbers.get("malformed") or 0)
    counts["errors"] = int(counts["errors"] or 0) + malformed
    counts["nulls"] = max(0, int(counts["nulls"] or 0) - malformed)
    padded, tokens = counts["padded_tokens"] or 0, counts["tokens"] or 0
    return {
        **counts,
        **{name: float(numbers.get(name) or 0) for name in _SECONDS},
        **{name: numbers.get(name) for name in ("memory_mb", "longest_task_s", "median_task_s")},
        "padding_share": 1 - tokens / padded if padded else None,
    }


def _number(value: object) -> int | float | None:
    return value if isinstance(value, (int, float)) else None
