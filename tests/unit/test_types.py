"""Entities: columns in, rows out, and an Arrow column that any reader understands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_ner.types import ENTITIES_TYPE, ENTITY_TYPE, Entities, Entity


@pytest.fixture
def entities() -> Entities:
    """Four documents: two entities, null, none, failed."""
    return Entities(
        offsets=np.array([0, 2, 2, 2, 2], np.int32),
        start=np.array([0, 8], np.int32),
        end=np.array([3, 12], np.int32),
        text=["Ada", "Oslo"],
        label=np.array([1, 0], np.int16),
        score=np.array([0.5, 0.75], np.float32),
        labels=("LOC", "PER"),
        valid=np.array([True, False, True, False]),
        errors={3: "the model failed"},
    )


def test_documents_are_lists_of_entities_or_none(entities: Entities) -> None:
    assert len(entities) == 4
    assert list(entities) == [
        [Entity(0, 3, "Ada", "PER", 0.5), Entity(8, 12, "Oslo", "LOC", 0.75)],
        None,
        [],
        None,
    ]
    with pytest.raises(IndexError):
        entities[4]


def test_to_arrow(entities: Entities) -> None:
    column = entities.to_arrow()
    assert column.type == ENTITIES_TYPE
    assert column.null_count == 2
    assert column.to_pylist() == [
        [
            {"start": 0, "end": 3, "text": "Ada", "label": "PER", "score": 0.5},
            {"start": 8, "end": 12, "text": "Oslo", "label": "LOC", "score": 0.75},
        ],
        None,
        [],
        None,
    ]
    column.validate(full=True)


def test_errors_to_arrow(entities: Entities) -> None:
    column = entities.errors_to_arrow()
    assert column.type == pa.string()
    assert column.to_pylist() == [None, None, None, "the model failed"]


def test_no_documents() -> None:
    none = Entities(
        offsets=np.zeros(1, np.int32),
        start=np.zeros(0, np.int32),
        end=np.zeros(0, np.int32),
        text=[],
        label=np.zeros(0, np.int16),
        score=np.zeros(0, np.float32),
        labels=("LOC",),
        valid=np.zeros(0, bool),
    )
    assert list(none) == []
    assert none.to_arrow().to_pylist() == []
    assert none.to_arrow().type == ENTITIES_TYPE
    assert none.errors_to_arrow().to_pylist() == []


def test_the_struct_has_the_public_names_in_order() -> None:
    assert [(f.name, str(f.type)) for f in ENTITY_TYPE] == [
        ("start", "int32"),
        ("end", "int32"),
        ("text", "string"),
        ("label", "string"),
        ("score", "float"),
    ]
