"""Scores to tags to entities: equal to a plain loop on small random inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ner.engine.decode import Words, decode, softmax, word_tags
from spark_ner.labels import LabelScheme
from spark_ner.types import Entity
from tests.unit.test_labels import SCHEMES, by_the_book

TEXT = "aa bb cc dd ee ff gg hh"


def chances(row: np.ndarray) -> list[float]:
    powers = [math.exp(float(x) - float(row.max())) for x in row]
    return [p / sum(powers) for p in powers]


def plain_word_tag(tokens: np.ndarray, strategy: str) -> tuple[int, float]:
    """Tag and probability of one word from its tokens' logits, by a plain loop."""
    rows = [chances(row) for row in tokens]
    if strategy == "first":
        chosen = rows[0]
    elif strategy == "average":
        chosen = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    else:
        chosen = max(rows, key=max)
    best = max(range(len(chosen)), key=lambda i: chosen[i])
    return best, chosen[best]


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    n_tags=st.integers(2, 5),
    seed=st.integers(0, 999),
)
def test_word_tags_equal_a_plain_loop(strategy: str, lengths: list[int], n_tags: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(sum(lengths), n_tags)).astype(np.float32) * 3
    of_word = np.repeat(np.arange(len(lengths)), lengths)
    tags, scores = word_tags(logits, of_word, strategy=strategy)  # type: ignore[arg-type]
    expected = [plain_word_tag(logits[of_word == i], strategy) for i in range(len(lengths))]
    assert tags.tolist() == [tag for tag, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-5)
    assert (tags.dtype, scores.dtype) == (np.int16, np.float32)


def test_the_three_strategies_differ_where_they_should() -> None:
    logits = np.log(np.array([[0.6, 0.4], [0.1, 0.9], [0.7, 0.3]], np.float32))
    of_word = np.array([0, 0, 0])
    found = {s: word_tags(logits, of_word, strategy=s) for s in ("first", "average", "max")}  # type: ignore[arg-type]
    assert {s: int(tags[0]) for s, (tags, _) in found.items()} == {"first": 0, "average": 1, "max": 1}
    scores = [float(score[0]) for _, score in found.values()]
    assert scores == pytest.approx([0.6, 1.6 / 3, 0.9])


def test_softmax_of_huge_scores_is_finite() -> None:
    np.testing.assert_allclose(
        softmax(np.array([[1e4, 0.0], [-1e4, -1e4]], np.float32)), [[1, 0], [0.5, 0.5]]
    )


@st.composite
def documents(
    draw: st.DrawFn,
) -> tuple[str, list[list[tuple[int, float]] | None], dict[str, float], set[int]]:
    """(scheme, words' tags and scores by document or None for null, thresholds, failed documents)."""
    name = draw(st.sampled_from(sorted(SCHEMES)))
    tag = st.tuples(st.integers(0, len(SCHEMES[name]) - 1), st.floats(0, 1, width=32))
    texts = draw(st.lists(st.one_of(st.none(), st.lists(tag, max_size=8)), max_size=5))
    types = LabelScheme.from_tags(SCHEMES[name]).types
    thresholds = draw(
        st.dictionaries(st.sampled_from(types), st.sampled_from((0.0, 0.3, 0.6, 1.0)), max_size=2)
    )
    failed = draw(st.sets(st.integers(0, 4), max_size=2))
    return name, texts, thresholds, {i for i in failed if i < len(texts) and texts[i] is not None}


@settings(max_examples=50)
@given(documents())
def test_entities_equal_a_plain_loop(
    case: tuple[str, list[list[tuple[int, float]] | None], dict[str, float], set[int]],
) -> None:
    name, texts, thresholds, failed = case
    scheme = LabelScheme.from_tags(SCHEMES[name])
    flat = [(d, w, t, s) for d, words in enumerate(texts) for w, (t, s) in enumerate(words or [])]
    words = Words(
        np.array([d for d, _, _, _ in flat], np.int64),
        np.array([3 * w for _, w, _, _ in flat], np.int32),
        np.array([3 * w + 2 for _, w, _, _ in flat], np.int32),
        np.array([t for _, _, t, _ in flat], np.int16),
        np.array([s for _, _, _, s in flat], np.float32),
    )
    errors = dict.fromkeys(failed, "failed")
    found = decode(
        [None if t is None else TEXT for t in texts], words, scheme, thresholds=thresholds, errors=errors
    )
    assert len(found) == len(texts)
    assert dict(found.errors) == errors
    for i, tagged in enumerate(texts):
        mine = found[i]
        if tagged is None or i in failed:
            assert mine is None
            assert found.offsets[i] == found.offsets[i + 1]
            continue
        spans = by_the_book([scheme.tags[t] for t, _ in tagged], prefixed="none" not in name, first=[])
        expected = []
        for begin, end, kind in spans:
            score = float(np.mean([s for _, s in tagged[begin : end + 1]], dtype=np.float64))
            if np.float32(score) >= np.float32(thresholds.get(kind, 0.0)):
                start, stop = 3 * begin, 3 * end + 2
                expected.append(Entity(start, stop, TEXT[start:stop], kind, pytest.approx(score, abs=1e-6)))
        assert mine == expected


def test_an_entity_scores_the_mean_of_its_words_and_drops_below_its_threshold() -> None:
    scheme = LabelScheme.from_tags(("O", "B-PER", "I-PER", "B-LOC"))
    words = Words(
        np.array([0, 0, 0, 1]),
        np.array([0, 3, 6, 0], np.int32),
        np.array([2, 5, 8, 2], np.int32),
        np.array([1, 2, 3, 3], np.int16),
        np.array([0.5, 1.0, 0.7, 0.9], np.float32),
    )
    texts = [TEXT, TEXT]
    every = decode(texts, words, scheme, thresholds={}, errors={})
    assert [[(e.text, e.label, round(e.score, 6)) for e in d or []] for d in every] == [
        [("aa bb", "PER", 0.75), ("cc", "LOC", 0.7)],
        [("aa", "LOC", 0.9)],
    ]
    sure = decode(texts, words, scheme, thresholds={"LOC": 0.8, "PER": 0.75}, errors={})
    assert [[e.text for e in d or []] for d in sure] == [["aa bb"], ["aa"]]
    assert sure.offsets.tolist() == [0, 1, 2]


def test_words_of_other_documents_leave_no_rounding_in_a_score() -> None:
    """The mean of two neighbouring floats lies half way: the least rounding error would tip it over."""
    scheme = LabelScheme.from_tags(("O", "B-PER", "I-PER"))
    low = (np.random.default_rng(1).random(200) * 1e-6).astype(np.float32)
    unsure = np.stack([low, np.nextafter(low, np.float32(1))], axis=1).ravel()
    scores = np.concatenate([np.ones(8_192, np.float32), unsure])
    place = np.arange(len(scores))
    starts = (place % 2 * 3).astype(np.int32)
    words = Words(place // 2, starts, starts + 2, np.full(len(scores), 2, np.int16), scores)
    together = decode([TEXT] * (len(scores) // 2), words, scheme, thresholds={}, errors={})
    alone = scores.reshape(-1, 2).astype(np.float64).mean(axis=1).astype(np.float32)
    np.testing.assert_array_equal(together.score, alone)


def test_a_failed_document_leaves_no_entity() -> None:
    scheme = LabelScheme.from_tags(("O", "B-PER"))
    starts = np.zeros(3, np.int32)
    words = Words(np.arange(3), starts, starts + 2, np.ones(3, np.int16), np.ones(3, np.float32))
    found = decode(["aa", "bb", "cc"], words, scheme, thresholds={}, errors={1: "the model failed"})
    assert found.text == ["aa", "cc"]
    assert found.offsets.tolist() == [0, 1, 1, 2]
    assert found.to_arrow().to_pylist()[1] is None
