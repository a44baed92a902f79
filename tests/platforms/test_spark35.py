"""Spark 3.5, Delta 3.3 and the libraries of their time: `make test-35` runs this in its own environment.

Nothing here is newer than that environment: no arrow_udf, a row limit alone on Arrow batches, pandas between.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_ner
from spark_ner.bundle.load import locate
from spark_ner.errors import ColumnError
from spark_ner.spark.job import run
from spark_ner.spark.session import build_session, check_environment
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.ship import ship
from spark_ner.spark.transform import annotate_frame

pytestmark = pytest.mark.skipif(
    not pyspark.__version__.startswith("3.5"), reason="runs in .venv35: make test-35"
)

ROOT = Path(__file__).resolve().parents[2]
RAW = bytes.fromhex("4F736C6F20FF20526F6D65")  # "Oslo", a byte that is no text, "Rome"
TEXTS = ["Ada Novak left Oslo.", None, "", "no name", "Acme in Kyoto"]
SPANS = [[(0, 9, "PER"), (15, 19, "LOC")], None, [], [], [(0, 4, "ORG"), (8, 13, "LOC")]]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    session = build_session(
        "spark-ner-35",
        jars=Path(os.environ.get("SPARK_NER_TEST_JARS", ROOT / ".jars35")),
        conf={
            "spark.master": "local[2]",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def docs(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")


def spans(df: DataFrame) -> list[list[tuple[int, int, str]] | None]:
    return [
        None if row.entities is None else [(e.start, e.end, e.label) for e in row.entities]
        for row in df.orderBy("id").collect()
    ]


def test_the_environment_is_in_order(spark: SparkSession) -> None:
    check_environment(spark)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "1000"


def test_every_face_gives_the_same(spark: SparkSession, docs: DataFrame) -> None:
    assert spans(annotate_frame(docs, ship(spark, "fake"), stats_col="stats")) == SPANS
    assert spans(spark_ner.annotate(docs, model="fake")) == SPANS
    ner = spark_ner.ner_udf("fake")
    assert spans(docs.select("id", ner("text").alias("entities"))) == SPANS
    assert spans(docs.select("id", ner(docs.text).alias("entities"))) == SPANS
    once = docs.select("id", spark_ner.ner_once(ner("text")).alias("entities")).where("size(entities) > 0")
    assert spans(once) == [SPANS[0], SPANS[4]]
    docs.createOrReplaceTempView("docs")
    spark_ner.register(spark, model="fake")
    spark_ner.register(spark, "redact", model="fake", function="redact")
    assert spans(spark.sql("SELECT id, ner(text) AS entities FROM docs")) == SPANS
    rows = spark.sql("SELECT redact(text) AS text FROM docs ORDER BY id").collect()
    assert [row.text for row in rows] == ["[PER] left [LOC].", None, "", "no name", "[ORG] in [LOC]"]


def test_a_row_that_fails_and_text_that_is_not_utf_8(
    spark: SparkSession, docs: DataFrame, tmp_path: Path
) -> None:
    failed = (
        spark_ner.annotate(docs, model="fake", max_document_chars=15).where("ner_error is not null").collect()
    )
    assert [(row.id, row.entities, row.ner_error) for row in failed] == [
        (0, None, "the document has 20 characters; max_document_chars is 15")
    ]
    (tmp_path / "docs.txt").write_bytes(RAW)
    df = spark.read.text(str(tmp_path)).selectExpr("1 AS id", "value AS text")
    expected = [[(0, 4, "LOC"), (7, 11, "LOC")]]
    assert spans(spark_ner.annotate(df, model="fake")) == expected
    assert spans(annotate_frame(df, ship(spark, "fake"))) == expected
    df.createOrReplaceTempView("not_text")
    spark_ner.register(spark, model="fake")
    assert spans(spark.sql("SELECT id, ner(CAST(text AS BINARY)) AS entities FROM not_text")) == expected


def test_annotate_evaluates_once_and_prunes(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.createDataFrame(
        [(1, "Oslo", "en"), (2, "Rome", "de")], "id long, text string, lang string"
    ).write.format("delta").partitionBy("lang").save(table)
    view = spark_ner.annotate(spark.read.format("delta").load(table), model="fake")
    view.createOrReplaceTempView("annotated")
    filtered = spark.sql(
        "SELECT id, entities, ner_error FROM annotated WHERE lang = 'en' AND size(entities) > 0"
    )
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert plan.count("EvalPython") == 1
    assert " = en)" in plan.split("PartitionFilters: [")[1].split("]")[0]
    assert spans(filtered) == [[(0, 4, "LOC")]]


def test_the_job_and_its_rerun(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(TEXTS)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    config = JobConfig(
        input=str(tmp_path / "in"),
        output=str(tmp_path / "entities"),
        model="fake",
        id_col="id",
        format="json",
    )
    report = run(spark, config)
    assert (report.total("documents"), report.total("nulls"), report.total("entities")) == (5, 1, 4)
    assert spans(spark.read.format("delta").load(config.output)) == SPANS
    assert not run(spark, config).is_new
    assert spark.read.format("delta").load(config.output).count() == 5
    once = replace(config, mode="once", output=str(tmp_path / "once"), run_id="run-1")
    run(spark, once)
    assert spans(spark.read.format("delta").load(once.output)) == SPANS


def test_a_missing_column_is_named(docs: DataFrame) -> None:
    with pytest.raises(ColumnError, match='column "txt" not found; the table has: id, text'):
        spark_ner.annotate(docs, "txt", model="fake")


@pytest.mark.skipif(
    not (locate("default") / "manifest.json").is_file(), reason="the default model is not built"
)
def test_the_default_model(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "Angela Merkel spoke in Berlin."), (2, None)], "id long, text string")
    assert spans(spark_ner.annotate(df)) == [[(0, 13, "PER"), (23, 29, "LOC")], None]
