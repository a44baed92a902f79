"""The job end to end with the fake model: real Spark, real Delta, `deltalake` as the independent reader."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows

from spark_ner.engine.spec import EngineSpec
from spark_ner.errors import CheckpointError, ColumnError, CommitError, ConfigError, SchemaError
from spark_ner.spark import microbatch
from spark_ner.spark.job import prepare, run
from spark_ner.spark.microbatch import Hooks
from spark_ner.spark.report import entity_lines, plan_lines
from tests.fixtures.jobs import Crash, crash_at, documents, ids_of, job, rows_of, write_lines

OSLO = {"text": "Oslo", "label": "LOC"}


def _entities(row: dict[str, object]) -> list[dict[str, object]]:
    return [{"text": e["text"], "label": e["label"]} for e in row["entities"]]  # type: ignore[union-attr]


def test_a_run_a_rerun_and_a_new_file(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*documents(6), {"id": 6, "lang": None, "text": None}, {"id": 7, "lang": "en", "text": " "}]
    write_lines(tmp_path / "in/a.jsonl", rows)
    config = job(tmp_path, keep=("lang",))
    seen: list[int | None] = []
    report = run(spark, config, hooks=Hooks(on_row=lambda row: seen.append(row.batch_id)))
    assert seen == [0]
    assert (report.total("documents"), report.total("nulls"), report.total("errors")) == (8, 1, 0)
    assert report.total("entities") == 9

    table = {row["id"]: row for row in rows_of(config.output)}
    assert _entities(table[1]) == [{"text": "Ada Novak", "label": "PER"}, OSLO]
    assert (table[1]["lang"], table[6]["lang"], table[6]["entities"], table[7]["entities"]) == (
        "en",
        None,
        None,
        [],
    )
    assert str(table[1]["document_source"]).endswith("/in/a.jsonl")
    text = rows[1]["text"]
    assert all(text[e["start"] : e["end"]] == e["text"] for e in table[1]["entities"])  # type: ignore[index, union-attr]
    (figures,) = rows_of(report.runs_table)
    assert (figures["documents"], figures["entities"], figures["words"]) == (8, 9, report.total("words"))
    assert (figures["batch_id"], figures["replayed"], figures["run_id"]) == (0, False, report.run_id)
    assert figures["tokenize_s"] > 0
    assert figures["n_tasks"] >= 2
    assert figures["memory_mb"] > 50
    assert figures["longest_task_s"] >= figures["median_task_s"] > 0

    again = run(spark, config)
    assert "nothing new" in str(again)
    assert len(rows_of(config.output)) == 8
    assert len(rows_of(report.runs_table)) == 1

    # A file copied in with a date before all others: Spark's default would skip it without a word.
    old = write_lines(tmp_path / "in/old.jsonl", documents(2, first=20))
    os.utime(old, (time.time() - 40 * 86_400,) * 2)
    third = run(spark, config)
    assert third.total("documents") == 2
    assert third.query_id == report.query_id
    assert ids_of(config.output) == sorted([*range(8), 20, 21], key=str)
    lines = entity_lines(spark.read.format("delta").load(config.output), id_col="id", shape="nested", limit=2)
    assert lines[1].split() == ["0", "LOC", "Oslo", "15", "19", "1.00"]


def test_every_point_survives_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(5))
    config = job(tmp_path)
    # One start after the other ends at the next point; what the last one left is what the next one finds.
    steps = ["marker written", "table created", "runs table created", "query recorded", "entities committed"]
    for step in [*steps, "run committed"]:
        with pytest.raises(Crash, match=step):
            run(spark, config, hooks=Hooks(on_step=crash_at(step)))
    final = run(spark, config)
    assert ids_of(config.output) == [0, 1, 2, 3, 4]
    (figures,) = rows_of(config.output + "_runs")
    # Written by the start before the last: derived from the table, since the model had run a start earlier.
    assert figures["replayed"] is True
    assert (figures["documents"], figures["entities"], figures["words"]) == (5, 7, None)
    assert [row.replayed for row in final.rows] == [True]
    assert "nothing new" in str(final)
    assert len({row["run_id"] for row in rows_of(config.output)}) == 1
    assert figures["run_id"] == rows_of(config.output)[0]["run_id"]


def test_a_replay_after_the_sink_had_finished(spark: SparkSession, tmp_path: Path) -> None:
    """Case C46: the newest file under commits/ is lost."""
    write_lines(tmp_path / "in/a.jsonl", documents(3))
    config = job(tmp_path)
    run(spark, config)
    commits = Path(config.output + "_checkpoint") / "commits"
    for file in (commits / "0", commits / ".0.crc"):
        file.unlink()
    again = run(spark, config)
    assert [row.replayed for row in again.rows] == [True]
    assert ids_of(config.output) == [0, 1, 2]
    assert len(rows_of(config.output + "_runs")) == 1


def test_a_lost_checkpoint_is_refused_and_recovered(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", [*documents(4), {"id": None, "lang": "en", "text": "Rome"}])
    config = job(tmp_path)
    first = run(spark, config)
    shutil.rmtree(config.output + "_checkpoint")
    write_lines(tmp_path / "in/b.jsonl", documents(3, first=10))
    with pytest.raises(CheckpointError, match=rf"query {first.query_id}.*--recover"):
        run(spark, config)
    # Killed in the middle of the recovery, it goes on with it, also without the flag.
    with pytest.raises(Crash):
        run(spark, replace(config, recover=True), hooks=Hooks(on_step=crash_at("query recorded")))
    second = run(spark, config)
    assert second.total("documents") == 3
    assert second.query_id != first.query_id
    assert ids_of(config.output) == sorted([0, 1, 2, 3, 10, 11, 12, None], key=str)
    assert "nothing new" in str(run(spark, config))


def test_a_checkpoint_of_another_job_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(2))
    write_lines(tmp_path / "in2/a.jsonl", documents(2, first=5))
    config = job(tmp_path)
    run(spark, config)
    other = replace(config, input=str(tmp_path / "in2"), checkpoint=config.output + "_checkpoint")
    with pytest.raises(CheckpointError, match="belongs to another job"):
        run(spark, other)
    # Another input may go into the same table, from a checkpoint of its own.
    run(spark, replace(other, checkpoint=str(tmp_path / "cp2")))
    assert ids_of(config.output) == [0, 1, 5, 6]
    # The table is made anew, but the checkpoint says that all was read.
    shutil.rmtree(config.output)
    with pytest.raises(CheckpointError, match="made anew"):
        run(spark, config)


def test_a_checkpoint_set_back_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(2))
    config = job(tmp_path)
    run(spark, config)
    checkpoint = Path(config.output + "_checkpoint")
    shutil.copytree(checkpoint, tmp_path / "backup")
    write_lines(tmp_path / "in/b.jsonl", documents(2, first=5))
    run(spark, config)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    write_lines(tmp_path / "in/c.jsonl", documents(2, first=8))
    with pytest.raises(CommitError, match="made from other files"):
        run(spark, config)
    assert ids_of(config.output) == [0, 1, 5, 6]


def test_a_file_rewritten_in_place_is_told_and_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in/a b.jsonl", documents(2))
    config = job(tmp_path)
    run(spark, config)
    write_lines(file, documents(3))
    again = run(spark, config)
    assert [f.path.rsplit("/", 1)[-1] for f in again.rewritten] == ["a%20b.jsonl"]
    assert "changed after they were read" in str(again)
    assert ids_of(config.output) == [0, 1]
    run(spark, config)
    told = [row for row in rows_of(config.output + "_runs") if row["rewritten"]]
    assert [row["documents"] for row in told] == [0]
    assert told[0]["rewritten"][0]["bytes"] == file.stat().st_size  # type: ignore[index]


def test_once_writes_a_run_once(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(3))
    config = job(tmp_path, mode="once", run_id="day-1")
    assert run(spark, config).total("documents") == 3
    again = run(spark, config)
    assert not again.is_new
    assert "none added" in str(again)
    assert ids_of(config.output) == [0, 1, 2]
    assert len(rows_of(again.runs_table)) == 1
    assert run(spark, replace(config, run_id="day-2")).is_new
    assert len(rows_of(config.output)) == 6
    # Without a name, equal input has an equal one.
    unnamed = replace(config, run_id=None, output=str(tmp_path / "out/second"))
    first, second = run(spark, unnamed), run(spark, unnamed)
    assert first.run_id == second.run_id
    assert not second.is_new
    assert len(rows_of(unnamed.output)) == 3


def test_one_evaluation_a_document(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C47: two tables are written, the model runs once a document."""
    calls = tmp_path / "calls"
    calls.mkdir()
    plain = microbatch.annotate_frame

    def counting(df: DataFrame, *args: object, **kwargs: object) -> DataFrame:
        folder = str(calls)

        def count(batches):  # type: ignore[no-untyped-def]
            import uuid

            for batch in batches:
                for key in batch.column("id").to_pylist():
                    open(f"{folder}/{key}-{uuid.uuid4().hex}", "w").close()
                yield batch

        return plain(df.mapInArrow(count, df.schema), *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(microbatch, "annotate_frame", counting)
    write_lines(tmp_path / "in/a.jsonl", documents(50))
    report = run(spark, job(tmp_path))
    assert sorted(int(p.name.split("-")[0]) for p in calls.iterdir()) == list(range(50))
    assert report.total("documents") == 50


def test_a_bad_row_is_one_error_and_the_rest_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Cases C49 and C68: 999 results and one error with its key, and no text in it."""
    rows = documents(1_000)
    rows[500] = {"id": 500, "lang": "en", "text": "XQ-CANARY-7 " + "x" * 100}
    file = write_lines(tmp_path / "in/a.jsonl", rows)
    with file.open("a") as out:
        out.write('{"id": 1000, "text": "XQ-CANARY-7\n')
    config = job(tmp_path, engine=EngineSpec(max_document_chars=90))
    report = run(spark, config)
    assert (report.total("documents"), report.total("errors")) == (1_001, 2)
    table = rows_of(config.output)
    failed = {row["id"]: row["ner_error"] for row in table if row["ner_error"] is not None}
    assert failed == {
        500: "the document has 112 characters; max_document_chars is 90",
        None: "the record could not be parsed",
    }
    assert sum(row["entities"] is not None for row in table) == 999
    assert "CANARY" not in str(report)
    assert "nothing new" in str(run(spark, config))


def test_exploded_is_a_row_an_entity_and_a_row_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *documents(3),
        {"id": 3, "lang": "en", "text": "nothing"},
        {"id": 4, "lang": "en", "text": "x" * 80},
    ]
    write_lines(tmp_path / "in/a.jsonl", rows)
    config = job(tmp_path, shape="exploded", engine=EngineSpec(max_document_chars=60))
    with pytest.raises(Crash):
        run(spark, config, hooks=Hooks(on_step=crash_at("entities committed")))
    report = run(spark, config)
    found = sorted(
        (row["id"], row["start"], row["text"], row["label"]) for row in rows_of(config.output) if row["label"]
    )
    assert found == [
        (0, 15, "Oslo", "LOC"),
        (1, 0, "Ada Novak", "PER"),
        (1, 18, "Oslo", "LOC"),
        (2, 15, "Oslo", "LOC"),
    ]
    (failed,) = [row for row in rows_of(config.output) if row["ner_error"]]
    assert (failed["id"], failed["start"], failed["text"]) == (4, None, None)
    (row,) = report.rows
    assert (row.replayed, row.documents, row.entities, row.errors) == (True, 5, 4, 1)


def test_ids_of_64_bits_and_null_come_back_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Case C37."""
    keys = pa.array([9223372036854775707, None], pa.int64())
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": keys, "text": ["Oslo", "x"]}), tmp_path / "in/a.parquet")
    config = job(tmp_path, format="auto", schema=None)
    run(spark, config)
    table = {row["id"]: row["entities"] for row in rows_of(config.output)}
    assert sorted(table, key=str) == [9223372036854775707, None]
    # Case C38: by name, never by position.
    (entity,) = table[9223372036854775707]  # type: ignore[misc]
    assert (entity["start"], entity["end"], entity["label"]) == (0, 4, "LOC")  # type: ignore[index]


def test_an_output_with_other_columns_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Case C44: a field that is new, and one whose type changed."""
    write_lines(tmp_path / "in/a.jsonl", documents(2))
    config = job(tmp_path)
    kind = "array<struct<start:int,end:int,label:string>>"
    spark.createDataFrame([], f"id bigint, entities {kind}").write.format("delta").save(config.output)
    with pytest.raises(
        SchemaError, match=r"entities: the table has array<struct<start:int,end:int,label:string>>, "
    ):
        run(spark, config)
    kept = job(tmp_path, output=str(tmp_path / "out/kept"))
    run(spark, kept)
    with pytest.raises(SchemaError, match="id: the table has bigint, the job writes string"):
        run(spark, replace(kept, schema="id string, lang string, text string"))
    with pytest.raises(SchemaError, match="lang: the table has no such column, the job writes string"):
        run(spark, replace(kept, keep=("lang",)))
    assert ids_of(kept.output) == [0, 1]
    assert rows_of(config.output) == []


def test_faults_of_the_call_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(2))
    for changes, error, says in (
        (
            {"text_col": "txt"},
            ColumnError,
            'column "txt" not found; the input has: id, lang, text; did you mean',
        ),
        ({"text_col": "id"}, ColumnError, 'column "id" is bigint; text is wanted'),
        (
            {"keep": ("document_source",), "schema": "id int, document_source int, text string"},
            ColumnError,
            "rename",
        ),
        ({"engine": EngineSpec(window_tokens=510, overlap_tokens=510)}, ConfigError, "at most 509"),
        ({"engine": EngineSpec(window_tokens=512)}, ConfigError, "at most 510"),
        ({"output": "entities"}, ConfigError, "--checkpoint"),
        ({"output": "s3://b/t"}, Exception, "single_writer=true"),
    ):
        with pytest.raises(error, match=says):  # type: ignore[arg-type]
            run(spark, job(tmp_path, **changes))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_the_plan_and_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(4))
    config = job(tmp_path)
    text = "\n".join(plan_lines(spark, prepare(spark, config)))
    for part in (
        "1 file(s)",
        "micro-batch",
        "512 tokens",
        "fake",
        "will be made",
        "begins query",
        "slot(s)",
    ):
        assert part in text
    assert not (tmp_path / "out").exists()


def test_a_named_table_and_a_delta_input(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(r["id"], r["text"]) for r in documents(4)], "id bigint, text string")
    rows.write.format("delta").saveAsTable("job_docs")
    try:
        config = job(
            tmp_path,
            input="job_docs",
            format="auto",
            output="job_entities",
            checkpoint=str(tmp_path / "cp"),
            schema=None,
        )
        assert run(spark, config).total("documents") == 4
        spark.createDataFrame([(9, "Rome")], "id bigint, text string").write.format("delta").mode(
            "append"
        ).saveAsTable("job_docs")
        assert run(spark, config).total("documents") == 1
        found = spark.table("job_entities").select("id", "document_source").orderBy("id").collect()
        assert [tuple(r) for r in found] == [(i, "job_docs") for i in (0, 1, 2, 3, 9)]
        assert spark.table("job_entities_runs").agg(F.sum("documents")).first()[0] == 5  # type: ignore[index]
        with pytest.raises(ConfigError, match="--id-col"):
            run(spark, replace(config, id_col=None))
        by_path = job(
            tmp_path, input=spark.table("job_docs").inputFiles()[0].rsplit("/", 1)[0].removeprefix("file:")
        )
        assert run(spark, replace(by_path, format="auto", schema=None)).total("documents") == 5
    finally:
        for name in ("job_docs", "job_entities", "job_entities_runs"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
