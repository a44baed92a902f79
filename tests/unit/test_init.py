from __future__ import annotations

import pytest

import spark_ner


def test_every_public_name_resolves() -> None:
    assert {name for name in spark_ner.__all__ if callable(getattr(spark_ner, name))} == {
        "annotate",
        "load_engine",
        "ner_once",
        "ner_udf",
        "register",
    }
    assert spark_ner.__version__ == "0.1.0"
    assert set(spark_ner.__all__) <= set(dir(spark_ner))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="'anotate'; it has: __version__, annotate"):
        _ = spark_ner.anotate  # type: ignore[attr-defined]
