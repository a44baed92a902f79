"""The partition function on Arrow batches; no session."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_ner.engine import EngineSpec
from spark_ner.errors import ColumnError, RowError
from spark_ner.spark import worker
from spark_ner.spark.schema import STATS_ARROW
from spark_ner.spark.ship import Shipped, ship
from spark_ner.spark.transform import Layout, annotate_batches, sliced, text_array

NO_SESSION = None


@pytest.fixture
def shipped() -> Shipped:
    return ship(NO_SESSION, "fake")  # type: ignore[arg-type]


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def run(batches: list[pa.RecordBatch], shipped: Shipped, layout: Layout) -> list[dict[str, object]]:
    return [row for out in annotate_batches(batches, shipped, layout) for row in out.to_pylist()]


def spans(row: dict[str, object]) -> list[tuple[int, int, str]] | None:
    entities = row["entities"]
    assert entities is None or isinstance(entities, list)
    return None if entities is None else [(e["start"], e["end"], e["label"]) for e in entities]


def test_rows_keep_order_columns_and_get_entities(shipped: Shipped) -> None:
    batches = [batch(id=[1, 2, 3], text=["in Oslo", None, ""]), batch(id=[4], text=["Rome and Rome"])]
    rows = run(batches, shipped, Layout(("id", "text"), "text"))
    assert [(r["id"], r["text"], spans(r), r["ner_error"]) for r in rows] == [
        (1, "in Oslo", [(3, 7, "LOC")], None),
        (2, None, None, None),
        (3, "", [], None),
        (4, "Rome and Rome", [(0, 4, "LOC"), (9, 13, "LOC")], None),
    ]


def test_columns_are_taken_by_name_and_leave_in_the_declared_order(shipped: Shipped) -> None:
    """C38: the batch's own order is not the declared one."""
    (out,) = annotate_batches(
        [batch(end=["z"], text=["Oslo"], start=["a"])], shipped, Layout(("start", "end", "text"), "text")
    )
    assert out.schema.names == ["start", "end", "text", "entities", "ner_error"]
    assert (out.column(0).to_pylist(), out.column(1).to_pylist()) == (["a"], ["z"])
    assert out.schema.field("entities").type.value_type.field(0).name == "start"
    assert out.column("entities").to_pylist()[0][0] | {"score": 0} == {
        "start": 0,
        "end": 4,
        "text": "Oslo",
        "label": "LOC",
        "score": 0,
    }


def test_an_empty_partition_ends_at_once_and_loads_nothing() -> None:
    spec = EngineSpec(batch_tokens=7)  # an engine that no other test has loaded
    fresh = ship(NO_SESSION, "fake", spec=spec)  # type: ignore[arg-type]
    before = worker.COUNTERS.model_loads
    assert list(annotate_batches([], fresh, Layout(("text",), "text"))) == []
    assert list(annotate_batches([batch(text=[])], fresh, Layout(("text",), "text"))) == []
    assert worker.COUNTERS.model_loads == before


def test_a_partition_of_nulls_keeps_its_rows(shipped: Shipped) -> None:
    nulls = pa.RecordBatch.from_arrays([pa.array([None] * 3, pa.string())], names=["text"])
    rows = run([nulls], shipped, Layout(("text",), "text"))
    assert [spans(r) for r in rows] == [None, None, None]


def test_figures_are_on_the_last_row_of_the_task_alone(shipped: Shipped) -> None:
    layout = Layout(("text",), "text", "stats")
    twice = [
        run([batch(text=["Oslo", "Ada Novak"]), batch(text=[None, "x"])], shipped, layout) for _ in range(2)
    ]
    for rows in twice:
        assert [r["stats"] is None for r in rows] == [True, True, True, False]
        figures = rows[-1]["stats"]
        assert isinstance(figures, dict)
        assert list(figures) == [field.name for field in STATS_ARROW]
        assert None not in figures.values()
        counts = {k: figures[k] for k in ("documents", "nulls", "errors", "words", "entities")}
        assert counts == {"documents": 4, "nulls": 1, "errors": 0, "words": 4, "entities": 2}
        assert figures["task_s"] >= figures["forward_s"] > 0
        assert figures["memory_mb"] > 20
    assert twice[1][-1]["stats"]["model_loads"] == 0  # type: ignore[index]


def test_slices_hold_the_budget_or_one_row() -> None:
    texts = ["a" * 40, "b" * 40, None, "c" * 300, "d" * 10, "e" * 80, "f" * 20]
    whole = batch(text=texts, row=list(range(7)))
    pieces = list(sliced([whole, batch(text=["g"], row=[7])], "text", 100))
    assert [p.column("row").to_pylist() for p in pieces] == [[0, 1, 2], [3], [4, 5], [6], [7]]


def test_slices_share_memory_with_their_batch() -> None:
    whole = batch(text=["x" * 1000] * 100)
    before = pa.total_allocated_bytes()
    pieces = list(sliced([whole], "text", 1000))
    assert len(pieces) == 100
    assert pa.total_allocated_bytes() - before < 2_000


def test_the_reader_is_not_drained_before_the_first_result(shipped: Shipped) -> None:
    taken = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        while True:
            taken += 1
            yield batch(text=["Oslo " * 200] * 10)

    out = annotate_batches(endless(), shipped, Layout(("text",), "text"))
    assert next(out).num_rows == 10
    assert taken < 100  # the look-ahead is bounded by tokens


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_columns_of_every_kind(kind: pa.DataType) -> None:
    column = pa.array([b"Oslo", None, "né".encode()]).cast(kind)
    assert text_array(column).to_pylist() == ["Oslo", None, "né"]
    assert text_array(column.slice(2)).to_pylist() == ["né"]


def test_dictionary_and_null_columns() -> None:
    assert text_array(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist() == ["a", None, "a"]
    assert text_array(pa.nulls(2)).to_pylist() == [None, None]


def test_a_column_of_numbers_is_refused_by_its_type(shipped: Shipped) -> None:
    with pytest.raises(ColumnError, match="got a column of int64"):
        run([batch(text=[1])], shipped, Layout(("text",), "text"))


@pytest.mark.parametrize(
    ("raw", "entities"),
    [
        (bytes.fromhex("4F736C6F20FF20526F6D65"), [(0, 4, "LOC"), (7, 11, "LOC")]),
        ("ok \ud800 Turin".encode("utf-8", "surrogatepass"), [(5, 10, "LOC")]),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_bytes_that_are_not_text_count_as_one_each(
    raw: bytes, entities: list[tuple[int, int, str]], large: bool, shipped: Shipped
) -> None:
    """C40."""
    column = pa.array([b"Rome", raw, None], pa.large_binary() if large else pa.binary())
    column = column.view(pa.large_string() if large else pa.string())
    mixed = pa.RecordBatch.from_arrays([column], names=["text"])
    rows = list(annotate_batches([mixed], shipped, Layout(("text",), "text")))
    found = [r for out in rows for r in out.column("entities").to_pylist()]
    assert [None if d is None else [(e["start"], e["end"], e["label"]) for e in d] for d in found] == [
        [(0, 4, "LOC")],
        entities,
        None,
    ]


def test_a_row_over_the_limit_is_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """C49 and C68: one bad row; its text is in no message."""
    texts = [f"Oslo {i}" for i in range(20)]
    texts[7] = "XQ-CANARY-7 " * 10
    lax = ship(NO_SESSION, "fake", spec=EngineSpec(max_document_chars=50))  # type: ignore[arg-type]
    rows = run([batch(text=texts)], lax, Layout(("text",), "text"))
    assert [i for i, r in enumerate(rows) if r["entities"] is None] == [7]
    assert rows[7]["ner_error"] == "the document has 120 characters; max_document_chars is 50"
    strict = ship(NO_SESSION, "fake", spec=EngineSpec(max_document_chars=50, on_error="fail"))  # type: ignore[arg-type]
    with pytest.raises(RowError) as raised:
        run([batch(text=texts)], strict, Layout(("text",), "text"))
    assert "XQ-CANARY-7" not in str(raised.value) + caplog.text
