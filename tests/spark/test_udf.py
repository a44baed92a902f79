"""The scalar faces: SQL and DataFrame functions, what the optimizer makes of them, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

import spark_ner
from spark_ner.errors import ColumnError, ConfigError
from spark_ner.spark.ship import ship
from spark_ner.spark.transform import annotate_frame
from spark_ner.spark.udf import ColumnFunction
from tests.fixtures.tiny import tiny_bundle

TEXTS = ["Ada Novak left Oslo.", None, "", " \n ", "no name here", "Acme, Acme; and Rome " * 40]


@pytest.fixture(scope="module")
def docs(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")


@pytest.fixture(scope="module")
def ner(spark: SparkSession) -> ColumnFunction:
    return spark_ner.ner_udf("fake", spark=spark)


def rows_through_python(df: DataFrame) -> int:
    """Runs the query; the rows that all Python functions of its plan gave back, one an evaluation."""
    jdf: Any = df._jdf
    jdf.collectToPython()
    plan = jdf.queryExecution().executedPlan()
    waiting = [plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan]
    total = 0
    while waiting:
        node = waiting.pop()
        if node.nodeName().endswith("EvalPython"):
            total += int(node.metrics().apply("pythonNumRowsReceived").value())
        waiting += [node.children().apply(i) for i in range(node.children().size())]
    return total


def test_the_job_s_rows_equal_the_dataframe_s_and_sql_s(
    spark: SparkSession, docs: DataFrame, ner: ColumnFunction
) -> None:
    job = annotate_frame(docs, ship(spark, "fake"))
    assert_df_equality(spark_ner.annotate(docs, model="fake"), job, ignore_nullable=True)
    docs.createOrReplaceTempView("docs_of_udf")
    spark_ner.register(spark, "ner_sql", model="fake")
    sql = spark.sql("SELECT id, text, ner_sql(text) AS entities FROM docs_of_udf")
    assert_df_equality(sql, job.drop("ner_error"), ignore_nullable=True)
    assert_df_equality(docs.select("id", "text", ner("text").alias("entities")), sql, ignore_nullable=True)
    assert [None if r.entities is None else len(r.entities) for r in job.collect()] == [2, None, 0, 0, 0, 120]


def test_redact_in_sql(spark: SparkSession, docs: DataFrame) -> None:
    docs.createOrReplaceTempView("docs_of_udf")
    spark_ner.register(spark, "redact", model="fake", function="redact", max_document_chars=100)
    rows = spark.sql("SELECT redact(text) AS text FROM docs_of_udf ORDER BY id").collect()
    assert [row.text for row in rows] == ["[PER] left [LOC].", None, "", " \n ", "no name here", None]


def test_a_row_that_fails_has_a_sentence(docs: DataFrame) -> None:
    rows = spark_ner.annotate(docs, model="fake", max_document_chars=100).orderBy("id").collect()
    assert [row.ner_error for row in rows] == [
        *[None] * 5,
        "the document has 840 characters; max_document_chars is 100",
    ]
    assert rows[5].entities is None


def test_both_results_cost_one_evaluation_and_filters_none(docs: DataFrame, ner: ColumnFunction) -> None:
    both = spark_ner.annotate(docs, model="fake")
    assert rows_through_python(both.select("entities", "ner_error", F.size("entities").alias("n"))) == len(
        TEXTS
    )
    assert rows_through_python(both.where("size(entities) > 0 and ner_error is null")) == len(TEXTS)
    once = docs.select("id", spark_ner.ner_once(ner("text")).alias("entities")).where("size(entities) > 0")
    assert rows_through_python(once) == len(TEXTS)
    assert [row.id for row in once.orderBy("id").collect()] == [0, 5]
    # Why ner_once is there: without it the filter's copy of the function runs as well.
    twice = docs.select("id", ner("text").alias("entities")).where("size(entities) > 0")
    assert rows_through_python(twice) == len(TEXTS) + 2


@pytest.mark.parametrize("face", ["ner", "annotate"])
def test_a_partition_filter_through_a_view_prunes(
    spark: SparkSession, ner: ColumnFunction, tmp_path: Path, face: str
) -> None:
    table = str(tmp_path / "table")
    rows = [(i, "Oslo", lang) for i, lang in enumerate(["en", "de", "en", "fr"])]
    spark.createDataFrame(rows, "id long, text string, lang string").write.partitionBy("lang").parquet(table)
    df = spark.read.parquet(table)
    view = df.withColumn("entities", ner("text")) if face == "ner" else spark_ner.annotate(df, model="fake")
    view.createOrReplaceTempView("view_on_ner")
    filtered = spark.sql("SELECT * FROM view_on_ner WHERE lang = 'en'")
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert " = en)" in plan.split("PartitionFilters: [")[1].split("]")[0]
    assert rows_through_python(filtered) == 2


def test_a_large_model_is_not_captured(spark: SparkSession, tmp_path: Path) -> None:
    """C64, scaled down: the function that travels with each plan stays small."""
    bundle = tiny_bundle(tmp_path / "heavy", padding_bytes=3 << 20)
    function: Any = spark_ner.ner_udf(bundle.path, spark=spark)
    assert len(CloudPickleSerializer().dumps((function.func, function.returnType))) < 20_000


def test_the_dataframe_s_own_names_are_respected(spark: SparkSession) -> None:
    df = spark.createDataFrame([("Oslo",)], "`a.b``c` string")
    (row,) = spark_ner.annotate(df, "a.b`c", model="fake").collect()
    assert row.entities[0].text == "Oslo"


def test_what_is_wrong_is_said_at_the_call(spark: SparkSession, docs: DataFrame) -> None:
    with pytest.raises(ColumnError, match='column "txt" not found; the table has: id, text'):
        spark_ner.annotate(docs, "txt", model="fake")
    with pytest.raises(ConfigError, match="unknown key 'batch_tokns'; did you mean 'batch_tokens'"):
        spark_ner.annotate(docs, model="fake", batch_tokns=7)
    with pytest.raises(ConfigError, match="did you mean 'threads'"):
        spark_ner.register(spark, model="fake", thread=1)


def test_text_that_is_not_utf_8(spark: SparkSession, tmp_path: Path) -> None:
    """C40 for the functions."""
    raw = [
        bytes.fromhex("4F736C6F20FF20526F6D65"),
        "ok \ud800 Turin".encode("utf-8", "surrogatepass"),
        b"Kyoto",
    ]
    (tmp_path / "docs.txt").write_bytes(b"\n".join(raw))
    out = spark_ner.annotate(spark.read.text(str(tmp_path)).coalesce(1), "value", model="fake")
    found = [[(e.start, e.end) for e in row.entities] for row in out.collect()]
    assert found == [[(0, 4), (7, 11)], [(5, 10)], [(0, 5)]]
