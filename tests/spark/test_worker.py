"""Models in real Python workers: shipped once, written once a node, loaded once a process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_ner.bundle import Bundle
from spark_ner.bundle.load import locate
from spark_ner.engine import EngineSpec
from spark_ner.spark.ship import Shipped, ship
from spark_ner.spark.transform import Layout, annotate_batches, annotate_frame
from tests.fixtures.tiny import tiny_bundle

LAYOUT = Layout(("id", "text"), "text", "stats")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return tiny_bundle(tmp_path / "tiny", padding_bytes=2 << 20, name=tmp_path.name)


def docs(spark: SparkSession, *, partitions: int) -> DataFrame:
    return spark.range(0, 8, 1, partitions).selectExpr("id", "concat('in Oslo ', id) AS text")


def with_process(df: DataFrame, shipped: Shipped) -> list[Any]:
    """Each task's figures with its process id and whether that process has torch."""

    def annotate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        for out in annotate_batches(batches, shipped, LAYOUT):
            rows = out.num_rows
            added = [pa.array([os.getpid()] * rows), pa.array(["torch" in sys.modules] * rows)]
            yield pa.RecordBatch.from_arrays(
                [*out.columns, *added], names=[*out.schema.names, "pid", "torch"]
            )

    schema = annotate_frame(df, shipped, stats_col="stats").schema.add("pid", "long").add("torch", "boolean")
    return (
        df.mapInArrow(annotate, schema).where("stats is not null").select("stats.*", "pid", "torch").collect()
    )


def test_one_load_a_worker_and_one_materialization_a_node(
    spark: SparkSession, bundle: Bundle, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shipped = ship(spark, bundle.path, cache_dir=str(cache))
    assert shipped.ref.carrier == "broadcast"
    tasks = [task for _ in range(3) for task in with_process(docs(spark, partitions=4), shipped)]
    assert len(tasks) == 12
    assert {(task.documents, task.entities) for task in tasks} == {(2, 2)}
    pids = {task.pid for task in tasks}
    assert sum(task.model_loads for task in tasks) == len(pids) < len(tasks)
    assert sum(task.materialized for task in tasks) == 1
    assert not any(task.torch for task in tasks)
    assert [p.name for p in cache.iterdir() if p.is_dir()] == [shipped.ref.digest]


def test_eight_tasks_after_a_copy_that_was_cut_short(
    spark: SparkSession, bundle: Bundle, tmp_path: Path
) -> None:
    """C52: what a killed task leaves behind is not taken for a model."""
    shipped = ship(spark, bundle.path, cache_dir=str(tmp_path / "cache"))
    half = tmp_path / "cache" / f"{shipped.ref.digest}.part-x1"
    half.mkdir(parents=True)
    (half / "model.onnx").write_bytes(bundle.file("model.onnx").read_bytes()[:1000])
    (tmp_path / "cache").chmod(0o700)
    (tmp_path / "cache" / f"{shipped.ref.digest}.lock").touch()
    tasks = with_process(docs(spark, partitions=8), shipped)
    assert sum(task.materialized for task in tasks) == 1
    assert sum(task.documents for task in tasks) == 8
    assert not half.exists()


def test_a_path_is_read_in_place(spark: SparkSession, bundle: Bundle, tmp_path: Path) -> None:
    shipped = ship(spark, bundle.path, carrier="path", cache_dir=str(tmp_path / "cache"))
    rows = annotate_frame(docs(spark, partitions=2), shipped).collect()
    assert [[e.text for e in row.entities] for row in rows] == [["Oslo"]] * 8
    assert not (tmp_path / "cache").exists()


def test_a_model_that_changed_under_the_workers_is_refused(spark: SparkSession, bundle: Bundle) -> None:
    shipped = ship(spark, bundle.path, carrier="path", spec=EngineSpec(batch_tokens=300))
    weights = bundle.file("model.onnx")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(Exception, match=r"BundleError: .*was changed"):
        annotate_frame(docs(spark, partitions=1), shipped).collect()


def test_another_engine_is_loaded_for_other_settings_and_no_second_file(
    spark: SparkSession, bundle: Bundle, tmp_path: Path
) -> None:
    first = ship(spark, bundle.path, cache_dir=str(tmp_path / "cache"))
    second = ship(spark, bundle.path, cache_dir=str(tmp_path / "cache"), spec=EngineSpec(batch_tokens=99))
    assert sum(task.materialized for task in with_process(docs(spark, partitions=1), first)) == 1
    (task,) = with_process(docs(spark, partitions=1), second)
    assert (task.model_loads, task.materialized) == (1, 0)


@pytest.mark.skipif(
    not (locate("default") / "manifest.json").is_file(), reason="the default model is not built"
)
def test_the_default_model_in_a_worker(spark: SparkSession) -> None:
    text = "Angela Merkel met Barack Obama in Berlin."
    df = spark.createDataFrame([(1, text), (2, None), (3, "")], "id long, text string").coalesce(1)
    (task,) = with_process(df, ship(spark))
    assert (task.torch, task.documents, task.errors) == (False, 3, 0)
    assert task.memory_mb < 450
    rows = annotate_frame(df, ship(spark)).collect()
    assert [(e.text, e.label) for e in rows[0].entities] == [
        ("Angela Merkel", "PER"),
        ("Barack Obama", "PER"),
        ("Berlin", "LOC"),
    ]
    assert [row.entities for row in rows[1:]] == [None, []]
