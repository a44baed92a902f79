"""The fake that ships: deterministic, no weights, phrases wherever they stand as whole words."""

from __future__ import annotations

import pytest

from spark_ner.engine import load_engine
from spark_ner.engine.fake import GAZETTEER, FakeRuntime, fake_labels, fake_tokenizer
from tests.fixtures.taggers import spans


def test_the_gazetteer() -> None:
    engine = load_engine("fake")
    assert engine.labels == ("LOC", "ORG", "PER")
    assert engine.runtime.name == "fake"
    text = "Ada Novak of Acme flew from Oslo to Kyoto with Lars and Mina; Romeo stayed, romes, Oslo-Rome."
    assert [(text[a:b], label) for a, b, label in spans(engine, text)] == [
        ("Ada Novak", "PER"),
        ("Acme", "ORG"),
        ("Oslo", "LOC"),
        ("Kyoto", "LOC"),
        ("Lars", "PER"),
        ("Mina", "PER"),
        ("Oslo", "LOC"),
        ("Rome", "LOC"),
    ]


@pytest.mark.parametrize("word", GAZETTEER)
def test_each_word_is_found_alone_and_at_either_end(word: str) -> None:
    label = GAZETTEER[word].partition("-")[2]
    engine = load_engine("fake")
    assert spans(engine, word) == [(0, len(word), label)]
    assert spans(engine, f"{word}, {word}.") == [
        (0, len(word), label),
        (len(word) + 2, 2 * len(word) + 2, label),
    ]
    assert spans(engine, f"x{word} {word}x {word.lower()}") == []


def test_scores_are_high_and_equal() -> None:
    (found,) = load_engine("fake").annotate(["Oslo and Ada Novak"])
    assert found is not None
    assert {e.score for e in found} == {found[0].score}
    assert found[0].score > 0.99


def test_rules_of_ones_own() -> None:
    engine = load_engine("fake", rules={"widget": "B-PRODUCT", "blue widget": "I-PRODUCT", "it": "O"})
    assert engine.labels == ("PRODUCT",)
    assert spans(engine, "a widget and it") == [(2, 8, "PRODUCT")]


def test_labels_have_one_fixed_order() -> None:
    assert fake_labels({"a": "B-Z", "b": "B-A", "c": "O", "d": "B-Z"}) == ("O", "B-A", "B-Z")


def test_a_phrase_longer_than_the_batch_is_not_found() -> None:
    tokenizer = fake_tokenizer()
    runtime = FakeRuntime({"Bank of the Green Delta": "B-ORG", "": "B-ORG"}, tokenizer)
    from tests.fixtures.taggers import engine_with

    engine = engine_with(tokenizer, runtime, ("O", "B-ORG"))
    assert spans(engine, "Bank of") == []
    assert spans(engine, "Bank of the Green Delta")[0][0] == 0
