"""The table face in a real session: every row, every column, the same entities however it is cut."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.engine import EngineSpec
from spark_ner.errors import ColumnError
from spark_ner.spark.ship import ship
from spark_ner.spark.transform import annotate_frame

WORDS = ("Oslo", "rain", "Ada Novak", "fell", "on Acme,", "Rome", "and", "Kyoto.", "Lars", "saw it")


def documents(n: int) -> list[tuple[int, str | None]]:
    """Texts of 0 to about 300 words, a null among ten."""
    return [
        (i, None if i % 10 == 9 else " ".join(WORDS[(i * j + j) % 10] for j in range(i * i % 311)))
        for i in range(n)
    ]


def spans(df: DataFrame, key: str = "id") -> dict[object, list[tuple[int, int, str]] | None]:
    """Entities by key."""
    return {
        row[key]: None if row.entities is None else [(e.start, e.end, e.label) for e in row.entities]
        for row in df.select(key, "entities").collect()
    }


def test_a_partition_of_nulls_and_an_empty_one(spark: SparkSession) -> None:
    """C26."""
    df = spark.range(0, 6, 1, numPartitions=2).where("id < 3").selectExpr("cast(null as string) as text")
    out = annotate_frame(df, ship(spark, "fake"))
    assert out.rdd.getNumPartitions() == 2
    assert out.schema.simpleString() == (
        "struct<text:string,entities:array<struct<start:int,end:int,text:string,label:string,score:float>>,"
        "ner_error:string>"
    )
    assert [tuple(row) for row in out.collect()] == [(None, None, None)] * 3


def test_keys_pass_exactly(spark: SparkSession) -> None:
    """C37."""
    df = spark.createDataFrame([(9223372036854775707, "Oslo"), (None, "x")], "key long, text string")
    assert spans(annotate_frame(df, ship(spark, "fake")), "key") == {
        9223372036854775707: [(0, 4, "LOC")],
        None: [],
    }


def test_columns_of_one_type_do_not_change_places(spark: SparkSession) -> None:
    """C38: with names of the entity's own fields, in another order."""
    df = spark.createDataFrame(
        [("e", "Oslo", "s", "l")], "end string, text string, start string, label string"
    )
    (row,) = annotate_frame(df, ship(spark, "fake")).collect()
    assert (row["end"], row["text"], row["start"], row["label"]) == ("e", "Oslo", "s", "l")
    assert (row.entities[0]["start"], row.entities[0]["end"], row.entities[0]["label"]) == (0, 4, "LOC")


def test_columns_of_every_type_pass_untouched(spark: SparkSession) -> None:
    now = datetime.datetime(2024, 2, 29, 12, 30, 1, 123456)
    row = (
        *(
            "Oslo",
            now,
            now.date(),
            decimal.Decimal("12345678901234567.89"),
            1.5,
            True,
            bytearray(b"\xff\x00"),
        ),
        *({"a": 1, "b": None}, [("x", 1), None], datetime.timedelta(seconds=5)),
    )
    df = spark.createDataFrame(
        [row, (None,) * len(row)],
        "text string, at timestamp, day date, price decimal(20,2), x double, flag boolean, raw binary, "
        "counts map<string,int>, pairs array<struct<k:string,v:long>>, took interval day to second",
    )
    out = annotate_frame(df, ship(spark, "fake"), stats_col="stats")
    assert out.columns == [*df.columns, "entities", "ner_error", "stats"]
    assert [tuple(r) for r in out.select(df.columns).collect()] == [tuple(r) for r in df.collect()]


@pytest.mark.parametrize("how", ["text file", "sql"])
def test_text_that_is_not_utf_8_costs_no_other_row(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """C40."""
    raw = [
        bytes.fromhex("4F736C6F20FF20526F6D65"),
        "ok \ud800 Turin".encode("utf-8", "surrogatepass"),
        b"Kyoto",
    ]
    if how == "text file":
        (tmp_path / "docs.txt").write_bytes(b"\n".join(raw))
        df = spark.read.text(str(tmp_path / "docs.txt")).select(
            F.monotonically_increasing_id().alias("id"), "value"
        )
    else:
        df = spark.createDataFrame(list(enumerate(map(bytearray, raw))), "id long, value binary")
    out = annotate_frame(df.coalesce(1), ship(spark, "fake"), text_col="value")
    assert list(spans(out).values()) == [[(0, 4, "LOC"), (7, 11, "LOC")], [(5, 10, "LOC")], [(0, 5, "LOC")]]
    # Spark counts the units as the engine does: its own substring gives each entity back.
    first = out.select(F.expr("transform(entities, e -> substring(value, e.start + 1, e.end - e.start))"))
    if how == "text file":
        assert [row[0] for row in first.collect()] == [["Oslo", "Rome"], ["Turin"], ["Kyoto"]]


def test_one_bad_row_among_a_thousand(spark: SparkSession) -> None:
    """C49, C68: it has an error that does not hold its text; failing fast is a switch, and as silent."""
    rows = [(i, f"Oslo {i}" if i != 500 else "XQ-CANARY-7 " * 20) for i in range(1000)]
    df = spark.createDataFrame(rows, "id long, text string").repartition(2)
    out = annotate_frame(df, ship(spark, "fake", spec=EngineSpec(max_document_chars=100)))
    failed = [tuple(row) for row in out.where("entities is null").select("id", "ner_error").collect()]
    assert failed == [(500, "the document has 240 characters; max_document_chars is 100")]
    assert out.where("size(entities) = 1 and ner_error is null").count() == 999
    strict = ship(spark, "fake", spec=EngineSpec(max_document_chars=100, on_error="fail"))
    with pytest.raises(Exception, match="max_document_chars is 100") as raised:
        annotate_frame(df, strict).collect()
    assert "XQ-CANARY-7" not in str(raised.value)


def test_any_partitioning_and_batching_gives_the_same_rows(spark: SparkSession) -> None:
    rows = documents(60)
    df = spark.createDataFrame(rows, "id long, text string")
    shipped = ship(spark, "fake")
    expected = sorted(annotate_frame(df.coalesce(1), shipped).collect())
    names = ("Oslo", "Ada", "Acme", "Rome", "Kyoto", "Lars")
    assert [len(row.entities or ()) for row in expected] == [
        sum((text or "").count(name) for name in names) for _, text in rows
    ]
    for partitions, batch_rows, slice_bytes in [(1, 1, 4 << 20), (2, 7, 300), (9, 1000, 1)]:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
        try:
            spread = df.repartition(partitions, F.rand(7))
            assert sorted(annotate_frame(spread, shipped, slice_bytes=slice_bytes).collect()) == expected
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_order_within_a_partition_is_kept(spark: SparkSession) -> None:
    df = (
        spark.createDataFrame(documents(50), "id long, text string")
        .coalesce(1)
        .sortWithinPartitions(F.desc("id"))
    )
    assert [row.id for row in annotate_frame(df, ship(spark, "fake")).collect()] == list(range(49, -1, -1))


def test_large_arrow_strings(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "Oslo"), (2, None)], "id long, text string")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert spans(annotate_frame(df, ship(spark, "fake"))) == {1: [(0, 4, "LOC")], 2: None}
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_figures_of_the_tasks_add_up(spark: SparkSession) -> None:
    df = spark.createDataFrame(documents(60), "id long, text string").repartition(2)
    out = annotate_frame(df, ship(spark, "fake"), stats_col="stats").cache()
    per_task = out.where("stats is not null").select("stats.*").collect()
    assert len(per_task) == 2
    n_entities = sum(len(entities or ()) for entities in spans(out).values())
    assert sum(task.documents for task in per_task) == 60
    assert sum(task.nulls for task in per_task) == 6
    assert sum(task.entities for task in per_task) == n_entities
    assert all(task.padded_tokens >= task.tokens > 0 for task in per_task)
    out.unpersist()


def test_columns_that_cannot_be_annotated_are_named_before_a_job_starts(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "a", "en")], "id long, text string, lang string")
    with pytest.raises(ColumnError, match='column "txt" not found; the table has: id, text, lang'):
        annotate_frame(df, ship(spark, "fake"), text_col="txt")
    with pytest.raises(ColumnError, match='column "id" is bigint'):
        annotate_frame(df, ship(spark, "fake"), text_col="id")


def test_a_stream_is_annotated_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(documents(20), "id long, text string").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long, text string").parquet(str(tmp_path / "in"))
    query = (
        annotate_frame(stream, ship(spark, "fake"))
        .writeStream.format("memory")
        .queryName("annotated_stream")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert len(spans(spark.table("annotated_stream"))) == 20
