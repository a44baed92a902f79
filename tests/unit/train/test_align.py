"""Spans to targets over the engine's words."""

import numpy as np

from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.train.align import Targets
from spark_ner.train.corpora import TYPES, UNSURE
from spark_ner.train.data import Labeled, Span
from spark_ner.train.model import tokenizer_of
from tests.unit.train.conftest import rust_tokenizer

TARGETS = Targets(TYPES, [frozenset({"PER", "ORG", "LOC"})])
TAGS = TARGETS.scheme.tags


def tags(tokenizer, text: Labeled, annotates=None) -> list[str]:
    """The targets of the words, readable: tags joined by `|`, `-` where a word is left out."""
    tokens = tokenizer.encode([text.text])
    found = TARGETS.of(tokens, text, annotates)
    assert not found[~tokens.word].any()
    return [readable(t) for t in found[tokens.word].tolist()]


def readable(target: int) -> str:
    return "|".join(TAGS[i] for i in np.flatnonzero(TARGETS.allowed[target])) or "-"


def test_first_words_begin_and_others_are_inside(tokenizer):
    text = Labeled("Ada Novak met Acme", (Span(0, 9, "PER"), Span(14, 18, "ORG")))
    assert tags(tokenizer, text) == ["B-PER", "I-PER", "O", "B-ORG"]


def test_words_that_yield_no_piece_move_no_label(tokenizer):  # case C56
    text = Labeled("Oslo \u0651 \u200d calls Rome", (Span(0, 4, "LOC"), Span(15, 19, "LOC")))
    assert text.text[15:19] == "Rome"
    tokens = tokenizer.encode([text.text])
    found = TARGETS.of(tokens, text)
    by_word = {text.text[s:e]: readable(t) for s, e, t in zip(tokens.start, tokens.end, found, strict=True)}
    assert by_word["Oslo"].endswith("B-LOC") or "Oslo" not in by_word
    assert by_word["calls"] == "O"
    assert by_word["Rome"] == "B-LOC"


def test_a_type_that_is_not_marked_is_unknown_outside(tokenizer):
    text = Labeled("in Oslo", (Span(3, 7, "LOC"),))
    assert tags(tokenizer, text, {"PER", "ORG", "LOC"}) == ["O|B-MISC|I-MISC", "B-LOC"]


def test_unsure_spans_and_words_covered_in_part_are_left_out(tokenizer):
    text = Labeled("met @ada in new york-based", (Span(4, 8, UNSURE), Span(12, 20, "LOC")))
    found = tags(tokenizer, text)
    assert found[0] == "O"
    assert set(found[1:3]) == {"-"}  # the handle
    assert found[3:5] == ["O", "B-LOC"]
    assert found[5] in ("-", "I-LOC")  # york-based: one word or three, as the engine says
    assert not any("PER" in tag for tag in found)


def test_half_a_word_is_left_out(tokenizer):
    assert tags(tokenizer, Labeled("rome2 oslo", (Span(0, 4, "LOC"),))) == ["-", "O"]


def test_two_spans_side_by_side_both_begin(tokenizer):
    text = Labeled("Rome Oslo", (Span(0, 4, "LOC"), Span(5, 9, "LOC")))
    assert tags(tokenizer, text) == ["B-LOC", "B-LOC"]


def test_a_line_break_is_outside_and_an_entity_goes_on_behind_it(tmp_path):
    rust_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tokenizer_of(tmp_path))
    text = Labeled("met Ada\r\n Novak", (Span(4, 15, "PER"),))
    tokens = tokenizer.encode([text.text])
    assert [readable(t) for t in TARGETS.of(tokens, text)] == ["O", "B-PER", "O", "I-PER"]
    assert tokens.solid.tolist() == [True, True, False, True]


def test_an_empty_text_has_no_targets(tokenizer):
    assert tags(tokenizer, Labeled("")) == []
