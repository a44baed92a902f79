"""Delta as the sink: what Delta drops without a word is noticed, and two writers both land."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_ner.errors import CommitError, ConfigError, PathError, SetupError
from spark_ner.sinks.delta import (
    Note,
    Table,
    append_once,
    check_store,
    create,
    find_commit,
    set_property,
)
from tests.fixtures.jobs import rows_of

NOTE = Note(
    query_id="q",
    batch_id=5,
    run_id="r",
    attempt="a",
    model_digest="m",
    fingerprint="f",
    input_digest="i",
    documents=1,
    characters=1,
)


def _table(spark: SparkSession, path: Path) -> Table:
    table = Table(str(path), True)
    create(spark, table, spark.range(1).schema, properties={"spark_ner.format": "1"})
    return table


def test_a_second_write_adds_nothing_and_names_the_first(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path / "t")
    assert append_once(spark.range(10), table, NOTE) == NOTE
    assert append_once(spark.range(10), table, replace(NOTE, attempt="b")) == NOTE
    assert len(rows_of(table.name)) == 10
    assert find_commit(spark, table, query_id="q", batch_id=5, recent=True) == NOTE
    assert find_commit(spark, table, query_id="q", batch_id=4) is None
    assert table.properties(spark)["spark_ner.format"] == "1"


def test_a_lower_version_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """Case C41: Delta ignores the second append and reports success."""
    table = _table(spark, tmp_path / "t")
    append_once(spark.range(10), table, NOTE)
    with pytest.raises(CommitError, match="skipped batch 3 of query q"):
        append_once(spark.range(7), table, replace(NOTE, batch_id=3, attempt="b"))
    assert len(rows_of(table.name)) == 10


def test_a_micro_batch_without_rows_is_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path / "t")
    assert append_once(spark.range(0), table, NOTE) == NOTE


def test_two_writers_both_land_while_a_third_changes_properties(spark: SparkSession, tmp_path: Path) -> None:
    """Case C43, smaller; the large fault campaign has the two processes."""
    table = Table(str(tmp_path / "t"), True)
    failures: list[BaseException] = []

    def write(writer: str) -> None:
        try:
            create(spark, table, spark.range(1).schema, properties={"spark_ner.format": "1"})
            for batch in range(5):
                note = replace(NOTE, query_id=writer, batch_id=batch, attempt=uuid.uuid4().hex)
                append_once(spark.range(100), table, note)
        except BaseException as error:
            failures.append(error)
            raise

    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in writers:
        thread.start()
    while not table.exists(spark) and any(t.is_alive() for t in writers):
        pass
    for turn in range(3):
        set_property(spark, table, "spark_ner.query.f", f"q-{turn}")
    for thread in writers:
        thread.join()
    assert not failures
    assert len(rows_of(table.name)) == 1_000
    assert table.properties(spark)["spark_ner.query.f"] == "q-2"


def test_a_property_cannot_end_its_string(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path / "o'dd name")
    with pytest.raises(ConfigError, match="cannot be a table property"):
        set_property(spark, table, "k", "x') --")
    set_property(spark, table, "spark_ner.query.f", "q")
    assert table.properties(spark)["spark_ner.query.f"] == "q"


def test_what_is_no_delta_table_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(PathError, match="is no Delta table"):
        Table(str(tmp_path), True).exists(spark)


def test_an_unsafe_store_needs_a_word(spark: SparkSession) -> None:
    table = Table("s3a://bucket/t", True)
    with pytest.raises(SetupError, match=r"spark\.delta\.logStore\.s3a\.impl"):
        check_store(spark, table, single_writer=False)
    check_store(spark, table, single_writer=True)
    check_store(spark, Table("/x", True), single_writer=False)


def test_names_and_paths() -> None:
    assert Table.parse("a.b_c") == Table("a.b_c", False)
    assert Table.parse("s3://b/t/") == Table("s3://b/t", True)
    assert Table.parse("out/t").is_path
    assert Table("a.b", False).sql_name() == "`a`.`b`"
    assert Table("/x/`y", True).sql_name() == "`delta`.`/x/``y`"


def test_a_strangers_commit_is_no_note() -> None:
    assert Note.from_json(None) is None
    assert Note.from_json("hello") is None
    assert Note.from_json('{"spark_ner": {"query_id": "q"}}') is None
    assert Note.from_json('["spark_ner"]') is None
    assert Note.from_json(NOTE.to_json()) == NOTE
