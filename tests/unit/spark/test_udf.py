from __future__ import annotations

import pyarrow as pa
import pytest

from spark_ner.engine import EngineSpec, load_engine
from spark_ner.errors import ConfigError
from spark_ner.spark import worker
from spark_ner.spark.ship import ship
from spark_ner.spark.udf import _to_pandas, redacted, register, results


def test_each_entity_becomes_its_label() -> None:
    texts = ["Ada Novak of Acme left Oslo.", "nobody", "", None, "x" * 40, "Oslo"]
    engine = load_engine("fake", spec=EngineSpec(max_document_chars=30))
    assert redacted(texts, engine.annotate(texts)).to_pylist() == [
        "[PER] of [ORG] left [LOC].",
        "nobody",
        "",
        None,
        None,  # a row that failed is not given out unredacted
        "[LOC]",
    ]


def test_values_add_up_to_the_rows_whatever_the_batches() -> None:
    shipped = ship(None, "fake")  # type: ignore[arg-type]
    arrays = [pa.array(["Oslo", None]), pa.array([], pa.string()), pa.array(["Rome"] * 3)]
    for what, first in [("ner", "Oslo"), ("redact", "[LOC]"), ("annotation", "Oslo")]:
        values = [v for array in results(arrays, what, shipped) for v in array.to_pylist()]
        assert len(values) == 5
        found = values[0]["entities"] if what == "annotation" else values[0]
        assert (found if what == "redact" else found[0]["text"]) == first


def test_a_task_without_rows_loads_nothing() -> None:
    shipped = ship(None, "fake", spec=EngineSpec(batch_tokens=8))  # type: ignore[arg-type]
    before = worker.COUNTERS.model_loads
    assert (
        list(results([], "ner", shipped)) == list(results([pa.array([], pa.string())], "ner", shipped)) == []
    )
    assert worker.COUNTERS.model_loads == before
    assert len(list(results([pa.array(["x"])], "ner", shipped))) == 1
    assert worker.COUNTERS.model_loads == before + 1


def test_pandas_gets_objects() -> None:
    shipped = ship(None, "fake")  # type: ignore[arg-type]
    (ner,) = map(_to_pandas, results([pa.array(["Oslo", None, ""])], "ner", shipped))
    assert [None if v is None else [e["text"] for e in v] for v in ner] == [["Oslo"], None, []]
    (both,) = map(_to_pandas, results([pa.array([b"Oslo", None])], "annotation", shipped))
    assert list(both.columns) == ["entities", "ner_error"]
    assert both["ner_error"].tolist() == [None, None]


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="'mask' is not one of 'ner', 'redact'"):
        register(None, "mask", function="mask")  # type: ignore[arg-type]
