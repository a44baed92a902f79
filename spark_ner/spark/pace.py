"""How fast the cluster reads: what sizes tasks and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.bundle import locate
from spark_ner.bundle.manifest import MANIFEST_NAME, read_manifest
from spark_ner.sinks.delta import Table
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.ship import Shipped

DEFAULT_WORDS_PER_S = 3_000.0  # one core, where neither the runs table nor the manifest knows better
CHARACTERS_A_WORD = 6.0
_MEASURED_ROWS = 5
_SMALL_SHARE = 0.1  # a model ten times slower than stated would still get enough tasks


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What sizes tasks: how many run at once, and how fast one reads."""

    slots: int
    characters_per_s: float


def measured_pace(
    spark: SparkSession, config: JobConfig, shipped: Shipped, *, runs: Table, characters: float | None
) -> Pace:
    """Slots of the cluster, and characters a second of one: as last measured, or as the manifest says.

    Args:
        spark: a classic session.
        config: the job.
        shipped: its model; another's figures do not count.
        runs: the table with the figures.
        characters: of the whole input, about, or None. For little work every slot gets one task at any pace,
            and reading the table is spared.
    """
    cpus = int(spark.sparkContext.getConf().get("spark.task.cpus", "1") or 1)
    slots = max(1, spark.sparkContext.defaultParallelism // cpus)
    stated = CHARACTERS_A_WORD * _stated_words_per_s(config, shipped)
    if characters is not None and characters < stated * config.task_seconds * slots * _SMALL_SHARE:
        return Pace(slots=slots, characters_per_s=stated)
    return Pace(slots=slots, characters_per_s=_measured(spark, shipped, runs) or stated)


def _measured(spark: SparkSession, shipped: Shipped, runs: Table) -> float | None:
    if not runs.exists(spark):
        return None
    same = (F.col("model_digest") == shipped.ref.digest) & (F.col("device") == shipped.spec.device)
    done = runs.read(spark).where(same & F.expr("not replayed and task_s > 1"))
    last = done.select("finished", "characters", "task_s").orderBy(F.col("finished").desc())
    rows = last.limit(_MEASURED_ROWS).collect()
    return sum(r["characters"] for r in rows) / sum(r["task_s"] for r in rows) if rows else None


def _stated_words_per_s(config: JobConfig, shipped: Shipped) -> float:
    if shipped.ref.carrier is None or not (locate(config.model) / MANIFEST_NAME).is_file():
        return DEFAULT_WORDS_PER_S
    return (
        read_manifest(locate(config.model)).variants[shipped.ref.variant].words_per_s or DEFAULT_WORDS_PER_S
    )
