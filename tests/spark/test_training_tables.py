"""Labeled sets in tables: spans, or tokens and tags; what does not fit is named with its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_ner.errors import ConfigError, TrainingDataError
from spark_ner.train.corpus import UNSURE, BadRows, Corpus, Fields, describe, rows_to_labeled
from spark_ner.train.data import Labeled, Span
from spark_ner.train.tables import load_table, read_table

SPANS = "id string, text string, spans array<struct<start:int,end:int,label:string,score:float>>"
ROWS = [
    ("b", "😓 e\u0301 Oslo", [(5, 9, "city", 0.5)]),
    ("a", "Ada met Acme", [(8, 12, "firm", None), (0, 3, "person", 1.0)]),
    ("d", "plain", []),
    ("c", "", []),
]
WANTED = [
    (Labeled("Ada met Acme", (Span(0, 3, "PER"), Span(8, 12, UNSURE))),),
    (Labeled("😓 e\u0301 Oslo", (Span(5, 9, "LOC"),)),),
    (Labeled(""),),
    (Labeled("plain"),),
]
LABELS = {"city": "LOC", "person": "PER", "firm": UNSURE}


def corpus(name: object, **changes: object) -> Corpus:
    given = {"name": "a", "files": (str(name),), "format": "table", "fields": Fields(id="id"), **changes}
    return Corpus(**given)  # type: ignore[arg-type]


def written(spark: SparkSession, path: Path, rows: list[tuple[object, ...]], schema: str = SPANS) -> Path:
    spark.createDataFrame(rows, schema).write.format("delta").save(str(path))
    return path


@pytest.fixture(scope="module")
def good(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(spark, tmp_path_factory.mktemp("tables") / "good", ROWS)  # type: ignore[arg-type]


def test_a_delta_path_with_spans(spark: SparkSession, good: Path) -> None:
    documents = load_table(spark, corpus(good, labels=LABELS))
    assert documents == WANTED  # sorted by id
    assert describe(documents)["entities"] == {UNSURE: 1, "LOC": 1, "PER": 1}


def test_a_named_table_and_a_parquet_path(spark: SparkSession, good: Path, tmp_path: Path) -> None:
    frame = spark.read.format("delta").load(str(good))
    frame.write.mode("overwrite").saveAsTable("labeled_texts")
    frame.write.parquet(str(tmp_path / "plain"))
    assert load_table(spark, corpus("labeled_texts", labels=LABELS)) == WANTED
    assert load_table(spark, corpus(tmp_path / "plain", labels=LABELS)) == WANTED
    spark.sql("drop table labeled_texts")


def test_tokens_and_tags_under_other_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(["New", "York", "e\u0301", "12"], ["B-LOC", "E-LOC", "O", "S-tax-percent"]), ([], [])]
    table = written(spark, tmp_path / "t", rows, "`my.words` array<string>, tags array<string>")
    documents = load_table(spark, corpus(table, fields=Fields(tokens="my.words", tags="tags")))
    tagged = Labeled("New York e\u0301 12", (Span(0, 8, "LOC"), Span(12, 14, "tax-percent")))
    assert sorted(documents, key=lambda d: d[0].text) == [(Labeled(""),), (tagged,)]


def test_nulls_and_bad_rows_are_named_or_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        ("a", "Oslo", [(0, 4, "LOC", None)]),
        ("b", None, []),
        ("c", "Hildegard", None),
        ("d", "Hildegard", [(0, 10, "PER", None)]),
        ("e", "Hildegard", [(0, 5, "PER", None), (0, 5, "PER", None)]),
        ("f", "Hildegard", [(0, None, "PER", None)]),
        ("g", "Hildegard", [None]),
        (None, "Hildegard", [(0, 9, None, None)]),
    ]
    table = written(spark, tmp_path / "t", rows)
    with pytest.raises(TrainingDataError) as caught:
        load_table(spark, corpus(table))
    assert str(caught.value).startswith(
        f"table {table}, row 1: spans[0].label: a string was wanted, got null"
    )
    bad = BadRows()
    assert load_table(spark, corpus(table), bad=bad) == [(Labeled("Oslo", (Span(0, 4, "LOC"),)),)]
    assert [(place.removeprefix(f"table {table}, "), reason) for place, reason in bad.listed] == [
        ("row 1", "spans[0].label: a string was wanted, got null"),
        ("row 3 (id 'b')", "text: a string was wanted, got null"),
        ("row 4 (id 'c')", "spans: a list was wanted, got null"),
        ("row 5 (id 'd')", "spans[0]: 0 <= start < end <= 9 (code points) was wanted, got 0 and 10"),
        ("row 6 (id 'e')", "entities must not overlap, got [0, 5) and [0, 5)"),
        ("row 7 (id 'f')", "spans[0].end: a whole number was wanted, got null"),
        ("row 8 (id 'g')", "spans[0]: a list was wanted, got null"),
    ]


def test_an_empty_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="set 'a' holds no text that can be read"):
        load_table(spark, corpus(written(spark, tmp_path / "t", [])), bad=BadRows())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            Fields(text="texts"),
            r'column "texts" not found; the table has: id, text, spans; did you mean .text.',
        ),
        (Fields(id="key"), 'column "key" not found'),
        (Fields(text="spans", spans="text"), 'column "spans" is array<.*>; string was wanted'),
        (Fields(spans="id"), 'column "id" is string; array<struct<start:int,end:int,label:string>> was'),
        (
            Fields(label="kind"),
            'column "spans" is array<.*>; array<struct<start:int,end:int,kind:string>> was',
        ),
        (Fields(start="score"), "array<struct<score:int,end:int,label:string>> was wanted"),
        (Fields(tokens="text", tags="spans"), 'column "text" is string; array<string> was wanted'),
    ],
)
def test_columns_that_do_not_fit_are_named(
    spark: SparkSession, good: Path, fields: Fields, message: str
) -> None:
    with pytest.raises(TrainingDataError, match=f"^table {good}: .*{message}"):
        read_table(spark, corpus(good, fields=fields))


def test_a_table_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for name in (tmp_path / "gone", "no_such_table"):
        with pytest.raises(TrainingDataError, match=f"labelled data not found: {name} is no table"):
            load_table(spark, corpus(name))
    with pytest.raises(ConfigError, match='format = "table" was wanted'):
        load_table(spark, Corpus(name="a", files=("x",)))


def test_executors_read_rows_as_the_driver_does(spark: SparkSession, good: Path) -> None:
    given = corpus(good, labels=LABELS)

    def texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read = rows_to_labeled((("row", row) for row in batch.to_pylist()), given, bad=BadRows())
            yield pa.record_batch({"seen": [repr(text) for text in read]})

    seen = read_table(spark, given).mapInArrow(texts, "seen string").collect()
    assert {row["seen"] for row in seen} == {repr(text) for (text,) in WANTED}
