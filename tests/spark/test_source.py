"""Five formats, read at once and as a stream, give the same documents under the same ids; faults are told."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.errors import ColumnError, ConfigError, PathError
from spark_ner.spark.job import reading
from spark_ner.spark.settings import JobConfig
from spark_ner.spark.source import MALFORMED, SOURCE, Source, open_source
from spark_ner.spark.split import SLOT, Split, dealt, measure, slot_keys, spark_hash, split
from tests.fixtures.jobs import documents, write_lines

TEXTS = ['Ada said "no"\r\nin Oslo, twice', "  ", "Ünïcode 🙂 Kyoto", "plain"]


def _open(spark: SparkSession, path: Path | str, **changes: object) -> Source:
    return open_source(spark, JobConfig(input=str(path), output="o", **changes))  # type: ignore[arg-type]


def _named(frame: DataFrame, n_tasks: int = 2) -> dict[str, str]:
    rows = dealt(frame, Split(n_tasks=n_tasks), text_col="text", id_col="document_id")
    return {row["document_id"].rsplit("/", 1)[-1]: row["text"] for row in rows.collect()}


def _streamed(spark: SparkSession, source: Source, checkpoint: Path) -> list[dict[str, str]]:
    batches: list[dict[str, str]] = []
    stream = source.stream(spark, batch_characters=1e9)
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: batches.append(_named(frame)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def _write(kind: str, folder: Path, spark: SparkSession) -> Path:
    folder.mkdir()
    if kind == "json":
        return write_lines(folder / "a b.jsonl", [{"text": t, "n": i} for i, t in enumerate(TEXTS)])
    if kind == "csv":
        with (folder / "a.csv").open("w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([("n", "text"), *((i, t) for i, t in enumerate(TEXTS))])
        return folder
    if kind == "parquet":
        frame = spark.createDataFrame([(i, t) for i, t in enumerate(TEXTS)], "n int, text string")
        frame.coalesce(1).write.mode("overwrite").parquet(str(folder))
        return folder
    for i, text in enumerate(TEXTS):
        (folder / f"{i}.txt").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "text"])
def test_stream_and_batch_give_the_same_documents(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = _write(kind, tmp_path / "in", spark)
    source = _open(spark, path)
    assert source.kind == kind
    with reading(spark):
        named = _named(source.read(spark))
        (streamed,) = _streamed(spark, source, tmp_path / "cp")
    # Spark's CSV reader ends lines by LF inside quotes too.
    texts = [t.replace("\r\n", "\n") for t in TEXTS] if kind == "csv" else TEXTS
    assert sorted(named.values()) == sorted(texts)
    assert streamed == named


def test_a_line_a_document(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Oslo\n\nRome\n")
    with reading(spark):
        named = _named(_open(spark, tmp_path / "a.txt", text_unit="line").read(spark))
    assert named == {"a.txt#0:0": "Oslo", "a.txt#0:1": "", "a.txt#0:2": "Rome"}


def test_positions_stay_when_files_are_added_and_files_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "b.jsonl", documents(200))
    source = _open(spark, tmp_path, schema="text string")
    with reading(spark):
        # Blocks of 4 KB here, for a file of 32 MB takes long.
        spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
        before = _named(source.read(spark))
        write_lines(tmp_path / "a.jsonl", documents(300, first=1_000))
        write_lines(tmp_path / "c.jsonl", documents(3, first=2_000))
        after = _named(source.read(spark), n_tasks=3)
    assert len(before) == 200
    assert len({key.split(":")[0] for key in before}) >= 3
    assert {key: text for key, text in after.items() if key.startswith("b.jsonl")} == before
    assert len(after) == 503


def test_slots_reach_their_partition(spark: SparkSession) -> None:
    keys = slot_keys(5).tolist()
    frame = spark.createDataFrame([(k, i) for i, k in enumerate(keys)], f"{SLOT} int, slot int")
    placed = frame.repartition(5, F.col(SLOT)).withColumn("at", F.spark_partition_id()).collect()
    assert {row["slot"]: row["at"] for row in placed} == {i: i for i in range(5)}
    values = [0, 1, -1, 2_147_483_647, -2_147_483_648]
    theirs = spark.createDataFrame([(v,) for v in values], "v int").select(F.hash("v")).collect()
    assert [row[0] for row in theirs] == spark_hash(np.array(values, np.int32)).tolist()


def test_one_huge_document_among_lines_has_the_first_task_to_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    for part in range(3):
        write_lines(tmp_path / f"{part}.jsonl", documents(300, first=part * 300))
    write_lines(tmp_path / "z.jsonl", [{"id": 9_999, "text": "Rome " * 4_000}])
    source = _open(spark, tmp_path, schema="id int, text string", id_col="id")
    with reading(spark):
        frame = source.read(spark)
        chosen = split(measure(frame, "text"), slots=2, task_characters=1e6)
        placed = dealt(frame, chosen, text_col="text", id_col="id").select(
            "id", F.spark_partition_id().alias("at")
        )
        at = {row["id"]: row["at"] for row in placed.collect()}
    assert (chosen.n_alone, chosen.n_tasks, at.pop(9_999)) == (1, 3, 0)
    sizes = [list(at.values()).count(task) for task in range(3)]
    assert sizes[0] == 0
    assert abs(sizes[1] - sizes[2]) < 30


def test_lengths_are_measured_by_file_and_order(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(
        tmp_path / "a.jsonl", [{"text": "x" * 7}, {"text": "ü" * 8}, {"text": None}, {"text": "x" * 9}]
    )
    with reading(spark):
        found = measure(_open(spark, tmp_path).read(spark), "text")
    assert (found.documents, found.characters) == (4, 24)
    assert {g.bits: (g.documents, g.characters) for g in found.groups} == {3: (1, 7), 4: (2, 17), 1: (1, 0)}
    assert found.files is not None
    assert found.files[0].bytes == (tmp_path / "a.jsonl").stat().st_size


def test_records_that_cannot_be_parsed_are_marked(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Oslo"}\n{"text": "Ro\n{"text": 5}\n')
    rows = _open(spark, tmp_path).read(spark).collect()
    assert [(row["text"], row[MALFORMED]) for row in rows] == [("Oslo", False), (None, True), ("5", False)]
    (tmp_path / "b.csv").write_text('n,text\n1,"Oslo"\n2,Rome,extra\n')
    rows = _open(spark, tmp_path / "b.csv").read(spark).collect()
    assert [(row["text"], row[MALFORMED]) for row in rows] == [("Oslo", False), ("Rome", True)]


def test_compressed_and_tab_separated_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": "Oslo"}).encode()))
    assert [row["text"] for row in _open(spark, tmp_path / "a.jsonl.gz").read(spark).collect()] == ["Oslo"]
    (tmp_path / "b.tsv").write_text("id\ttext\n007\tOslo, Rome\n")
    (row,) = _open(spark, tmp_path / "b.tsv", id_col="id").read(spark).collect()
    assert (row["id"], row["text"], row[SOURCE].rsplit("/", 1)[-1]) == ("007", "Oslo, Rome", "b.tsv")


def test_faults_are_told(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "j/a.jsonl", documents(1))
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/a.log").write_text("x")
    for path, changes, error, says in (
        ("nowhere", {}, PathError, "input not found: .*nowhere"),
        ("empty", {}, PathError, "no files in .*empty"),
        ("odd", {}, ConfigError, r"not clear \(file endings: .log\); say --format"),
        (
            "j",
            {"text_col": "txt"},
            ColumnError,
            r'"txt" not found; the input has: id, lang, text; did you mean',
        ),
        ("j", {"id_col": "key"}, ColumnError, '"key" not found'),
        ("j", {"keep": ("lnag",)}, ColumnError, "did you mean 'lang'"),
        ("j", {"schema": "text strin g g"}, ConfigError, "not DDL"),
        ("j", {"format": "delta"}, PathError, "no Delta table at"),
    ):
        with pytest.raises(error, match=says):  # type: ignore[arg-type]
            _open(spark, tmp_path / path, **changes)
    with pytest.raises(PathError, match="no table named no_such_docs"):
        _open(spark, "no_such_docs", format="delta")


def test_micro_batches_are_bounded_by_size() -> None:
    source = Source(kind="json", location="/x", n_files=1_000, n_bytes=50_000_000)
    assert source.limits(5_000_000, "4.2.0") == {"maxBytesPerTrigger": "5000000", "maxFileAge": "36500d"}
    assert source.limits(5_000_000, "3.5.9") == {"maxFilesPerTrigger": "100", "maxFileAge": "36500d"}
    tiny = Source(kind="text", location="/x", n_files=10_000_000, n_bytes=50_000_000)
    assert tiny.limits(5_000_000, "4.2.0")["maxFilesPerTrigger"] == "100000"
    table = Source(kind="delta", location="t", is_table=True)
    assert table.limits(5_000_000, "4.2.0")["maxBytesPerTrigger"] == "2000000"
