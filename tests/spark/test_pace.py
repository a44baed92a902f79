"""Tasks are sized by what was measured with the same model, or else by what its manifest states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from spark_ner.sinks.delta import Table, create
from spark_ner.sinks.runs import RUNS_SCHEMA
from spark_ner.spark.microbatch import append_run
from spark_ner.spark.pace import Pace, measured_pace
from spark_ner.spark.ship import ship
from tests.fixtures.jobs import job
from tests.unit.spark.test_report import ROW


def test_the_last_runs_of_the_same_model_set_the_pace(spark: SparkSession, tmp_path: Path) -> None:
    runs, config, shipped = Table(str(tmp_path / "runs"), True), job(tmp_path), ship(spark, "fake")
    stated = Pace(slots=2, characters_per_s=18_000.0)
    assert measured_pace(spark, config, shipped, runs=runs, characters=None) == stated
    create(spark, runs, RUNS_SCHEMA, properties={})
    ours = replace(ROW, model_digest=shipped.ref.digest, characters=100_000, task_s=20.0)
    for row in (
        ours,
        replace(ours, characters=200_000, task_s=40.0),
        replace(ours, characters=9_000_000, replayed=True),
        replace(ours, characters=9_000_000, model_digest="another"),
        replace(ours, characters=9_000_000, task_s=0.5),
    ):
        append_run(spark, runs, row, note=None)
    found = measured_pace(spark, config, shipped, runs=runs, characters=None)
    assert found == Pace(slots=2, characters_per_s=5_000.0)
    # So little that each slot gets one task at any pace: the table is not read.
    assert measured_pace(spark, config, shipped, runs=runs, characters=400_000) == stated
