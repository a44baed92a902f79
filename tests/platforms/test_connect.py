"""The public entry points on a Spark Connect server: `make test-connect`.

A Connect client has no JVM, no SparkContext and no broadcast: models go as artifacts, and everything here
either works or says at the call what Connect does not support.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_ner
from spark_ner.bundle import Bundle
from spark_ner.errors import ConfigError, SetupError
from spark_ner.spark.session import build_session, check_classic, check_workers
from spark_ner.spark.ship import is_connect, ship
from spark_ner.spark.transform import annotate_frame
from tests.fixtures.tiny import tiny_bundle

# Settings that only a server's start can take are set again, in vain, on the running one.
pytestmark = pytest.mark.filterwarnings("ignore:Failed to set spark")

TEXTS = ["Ada Novak left Oslo.", None, "", "no name"]
SPANS = [[(0, 9, "PER"), (15, 19, "LOC")], None, [], []]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def docs(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"), padding_bytes=3 << 20)


def spans(df: DataFrame) -> list[list[tuple[int, int, str]] | None]:
    return [
        None if row.entities is None else [(e.start, e.end, e.label) for e in row.entities]
        for row in df.orderBy("id").collect()
    ]


def test_it_is_a_connect_session(spark: SparkSession) -> None:
    assert is_connect(spark)


def test_annotate_the_functions_and_the_table_face_agree(spark: SparkSession, docs: DataFrame) -> None:
    assert spans(spark_ner.annotate(docs, model="fake")) == SPANS
    assert spans(annotate_frame(docs, ship(spark, "fake"), stats_col="stats")) == SPANS
    ner = spark_ner.ner_udf("fake", spark=spark)
    assert spans(docs.select("id", ner("text").alias("entities"))) == SPANS
    once = docs.select("id", spark_ner.ner_once(ner("text")).alias("entities")).where("size(entities) > 0")
    assert spans(once) == SPANS[:1]
    docs.createOrReplaceTempView("docs")
    spark_ner.register(spark, model="fake")
    spark_ner.register(spark, "redact", model="fake", function="redact")
    assert spans(spark.sql("SELECT id, ner(text) AS entities FROM docs")) == SPANS
    rows = spark.sql("SELECT redact(text) AS text FROM docs ORDER BY id").collect()
    assert [row.text for row in rows] == ["[PER] left [LOC].", None, "", "no name"]


def test_the_active_session_is_found(spark: SparkSession, docs: DataFrame) -> None:
    assert spans(docs.select("id", spark_ner.ner_udf("fake")("text").alias("entities"))) == SPANS
    assert build_session("any") is spark
    check_workers(spark)


def test_a_model_goes_as_an_artifact_and_once(spark: SparkSession, bundle: Bundle, tmp_path: Path) -> None:
    """C64: 3 MB of weights stay out of the function, whose limit is 1 MB."""
    shipped = ship(spark, bundle.path, cache_dir=str(tmp_path / "cache"))
    assert shipped.ref.carrier == "artifact"
    assert ship(spark, bundle.path, cache_dir=str(tmp_path / "cache")) == shipped
    df = spark.createDataFrame([(1, "in Oslo"), (2, None)], "id long, text string")
    out = annotate_frame(df, shipped, stats_col="stats")
    assert spans(out) == [[(3, 7, "LOC")], None]
    assert [p.name for p in (tmp_path / "cache").iterdir() if p.is_dir()] == [shipped.ref.digest]
    function: Any = spark_ner.ner_udf(shipped, spark=spark)
    assert spans(df.select("id", function("text").alias("entities"))) == [[(3, 7, "LOC")], None]
    spark_ner.register(spark, "ner_tiny", model=shipped)
    (row,) = spark.sql("SELECT size(ner_tiny('Oslo, Rome')) AS n").collect()
    assert row.n == 2


def test_a_broadcast_is_refused_at_the_call(spark: SparkSession, bundle: Bundle) -> None:
    with pytest.raises(
        ConfigError, match="Spark Connect has no broadcast; carrier can be 'artifact' or 'path'"
    ):
        ship(spark, bundle.path, carrier="broadcast")


def test_the_job_is_refused_in_one_sentence(spark: SparkSession) -> None:
    """C62."""
    with pytest.raises(SetupError, match=r"classic session \(spark-submit\), and this one is Spark Connect"):
        check_classic(spark)


def test_a_very_large_result_row_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """C29: 400,000 entities in one row pass no client message when they are written by the server."""
    df = spark.sql("SELECT 1 AS id, repeat('Oslo ', 400000) AS text")
    spark_ner.annotate(df, model="fake").write.parquet(str(tmp_path / "out"))
    (row,) = (
        spark.read.parquet(str(tmp_path / "out"))
        .selectExpr("size(entities) AS n", "entities[399999].end")
        .collect()
    )
    assert tuple(row) == (400_000, 1_999_999)
