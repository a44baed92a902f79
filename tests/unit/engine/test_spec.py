"""EngineSpec: impossible settings are refused before a job starts, with the highest legal value."""

from __future__ import annotations

import pickle

import pytest

from spark_ner.config import from_dict
from spark_ner.engine import EngineSpec
from spark_ner.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ({"lookahead_tokens": -5}, "lookahead_tokens must be at least 1, got -5"),
        ({"window_tokens": 0}, "window_tokens must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"max_document_chars": 0}, "max_document_chars must be at least 1"),
        ({"overlap_tokens": -1}, "overlap_tokens must be at least 0, got -1"),
        ({"thresholds": {"PER": 1.5}}, "threshold of PER must lie between 0 and 1, got 1.5"),
        ({"thresholds": {"PER": float("nan")}}, "threshold of PER must lie between 0 and 1, got nan"),
        ({"word_strategy": "last"}, "word_strategy must be one of first, average, max; got 'last'"),
        ({"runtime": "tensorrt"}, "runtime must be one of auto, onnx, torch, fake; got 'tensorrt'"),
        ({"on_error": "ignore"}, "on_error must be one of record, fail; got 'ignore'"),
    ],
)
def test_impossible_values_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineSpec(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "overlap", "wanted"),
    [
        (None, None, (254, 63)),  # the bundle's window; its overlap, at most a quarter of the window
        (None, 100, (254, 100)),
        (510, None, (510, 64)),
        (8, None, (8, 2)),
        (1, None, (1, 0)),
        (510, 509, (510, 509)),
    ],
)
def test_window_and_overlap(window: int | None, overlap: int | None, wanted: tuple[int, int]) -> None:
    spec = EngineSpec(window_tokens=window, overlap_tokens=overlap)
    assert spec.window(limit=510, default=254, overlap=64) == wanted


def test_the_window_of_a_bundle_is_cut_to_what_the_model_takes() -> None:
    assert EngineSpec().window(limit=30, default=254, overlap=64) == (30, 7)


def test_fingerprint_covers_every_setting() -> None:
    base = EngineSpec(thresholds={"PER": 0.5, "LOC": 0.25})
    assert base.fingerprint() == EngineSpec(thresholds={"LOC": 0.25, "PER": 0.5}).fingerprint()
    others = [
        EngineSpec(),
        EngineSpec(runtime="torch"),
        EngineSpec(variant="int8"),
        EngineSpec(window_tokens=8),
        EngineSpec(overlap_tokens=3),
        EngineSpec(batch_tokens=7),
        EngineSpec(lookahead_tokens=7),
        EngineSpec(word_strategy="max"),
        EngineSpec(thresholds={"PER": 0.5}),
        EngineSpec(threads=1),
        EngineSpec(device="cuda:0"),
        EngineSpec(max_document_chars=5),
        EngineSpec(on_error="fail"),
    ]
    assert len({spec.fingerprint() for spec in others}) == len(others)


def test_a_spec_travels() -> None:
    spec = EngineSpec(window_tokens=100, thresholds={"PER": 0.5})
    sent = pickle.dumps(spec)
    assert len(sent) < 2_000
    assert pickle.loads(sent) == spec


def test_a_spec_is_built_from_a_config_section() -> None:
    spec = from_dict(EngineSpec, {"batch_tokens": 2_048, "thresholds": {"PER": 1}}, where="engine")
    assert (spec.batch_tokens, spec.thresholds, spec.window_tokens) == (2_048, {"PER": 1.0}, None)
