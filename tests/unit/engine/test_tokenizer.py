"""Tokens, words and offsets over random Unicode, for every tokenizer family; slabs equal the whole."""

from __future__ import annotations

import unicodedata
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_ner.engine.text import clean
from spark_ner.engine.tokenizer import Tokenizer, Tokens, concatenate
from spark_ner.errors import BundleError
from tests.fixtures import texts as random_text
from tests.fixtures.tokenizers import FAMILIES, rust_tokenizer, tokenizer

families = pytest.mark.parametrize("family", FAMILIES)


def words_of(tokens: Tokens) -> list[tuple[int, int]]:
    """(start, end) of each word of one text, by a plain loop."""
    found: list[list[int]] = []
    for i in range(len(tokens)):
        if tokens.word[i]:
            found.append([int(tokens.start[i]), int(tokens.end[i])])
        elif tokens.solid[i] and found:
            found[-1][1] = max(found[-1][1], int(tokens.end[i]))
    return [(start, end) for start, end in found]


def surfaces(family: str, text: str) -> list[str]:
    return [text[a:b] for a, b in words_of(tokenizer(family).encode([text]))]


def assert_equal(left: Tokens, right: Tokens) -> None:
    """All columns are equal; where a token of nothing stands is no matter (byte-level ones move)."""
    np.testing.assert_array_equal(left.solid, right.solid)
    left, right = (replace(t, start=t.start * t.solid, end=t.end * t.solid) for t in (left, right))
    for column in fields(Tokens):
        mine, theirs = getattr(left, column.name), getattr(right, column.name)
        assert mine.dtype == theirs.dtype, column.name
        np.testing.assert_array_equal(mine, theirs, err_msg=column.name)


@families
@settings(max_examples=20)
@given(text=random_text.messy())
@example(text="👩\u200d👩\u200d👧Oslo e\u0301\u0323x ½½ İi")
@example(text=" \u200b \x00\u0301")
def test_words_are_sorted_disjoint_and_not_blank_at_either_end(family: str, text: str) -> None:
    text = clean(text)
    tokens = tokenizer(family).encode([text])
    before = 0
    for start, end in words_of(tokens):
        assert before <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        before = end
    assert not tokens.word[~tokens.solid].any()
    solid = np.flatnonzero(tokens.solid)
    assert not len(solid) or tokens.word[solid[0]]


@families
@settings(max_examples=20)
@given(texts=st.lists(random_text.messy(max_pieces=8).map(clean), max_size=5))
@example(texts=["in the U.S.", "Ada's", "\u0301x", "isn'", "t 3.", "5"])
def test_texts_together_give_what_each_gives_alone(family: str, texts: list[str]) -> None:
    engine_tokenizer = tokenizer(family)
    together = engine_tokenizer.encode(texts)
    for i, text in enumerate(texts):
        part = together.slice(int(together.offsets[i]), int(together.offsets[i + 1]))
        assert_equal(part, engine_tokenizer.encode([text]))


@families
@settings(max_examples=20)
@given(text=random_text.messy(max_pieces=60).map(clean), slab=st.sampled_from((128, 256)))
def test_slabs_equal_the_whole(family: str, text: str, slab: int) -> None:
    assert_streams_equal(family, text, slab)


@families
@settings(max_examples=20)
@given(text=random_text.unspaced.map(clean), slab=st.sampled_from((256, 512)))
def test_slabs_of_text_without_blanks_equal_the_whole(family: str, text: str, slab: int) -> None:
    assert_streams_equal(family, text * 4, slab)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("byte-bpe", "Oslo\n" * 70 + "Oslo "),  # ends in a blank token, after no space for a slab's length
        ("unigram", "o" * 150 + "ع" * 50 + ".aaaa" * 60),  # one unknown token fills the overlap up to a point
        ("unigram", "Oslo.Rome" * 100),
        ("wordpiece-cased", "東京" * 400),
    ],
)
def test_seams_of_slabs(family: str, text: str) -> None:
    assert_streams_equal(family, text, 256)
    assert len(list(tokenizer(family, slab_chars=256).stream(text))) > 1


def assert_streams_equal(family: str, text: str, slab: int) -> None:
    # WordPiece makes one unknown token of a word over 100 characters, and letter case needs a whole word:
    # words must fit the overlap of two slabs, as at the real slab's size. Here the longest ones are broken.
    text = text.replace("a" * 110, "a" * 9)
    whole = tokenizer(family).encode([text])
    parts = list(tokenizer(family, slab_chars=slab).stream(text))
    streamed = concatenate(parts) if parts else whole.slice(0, 0)
    streamed = streamed.slice(0, len(streamed))
    if max((end - start for start, end in words_of(whole)), default=0) > slab // 16:
        whole = replace(whole, case=streamed.case)
    assert_equal(streamed, whole)


@families
@settings(max_examples=20)
@given(text=random_text.messy().map(clean))
def test_no_word_starts_with_a_mark_of_the_character_before(family: str, text: str) -> None:
    for start, _ in words_of(tokenizer(family).encode([text])):
        assert start == 0 or unicodedata.category(text[start])[0] != "M" or text[start - 1].isspace()


@pytest.mark.parametrize(
    ("family", "text", "words"),
    [
        ("wordpiece-uncased", "Don't call A.G. now", ["Don", "'", "t", "call", "A", ".", "G", ".", "now"]),
        ("byte-bpe", "Don't  call U.S.", ["Don", "'t", "call", "U", ".", "S", "."]),
        ("unigram", "Don't call e-mail, 3.5%", ["Don't", "call", "e-mail", ",", "3.5", "%"]),
        (
            "unigram-split",
            "Paris,Rome;Oslo\tBern\xa0Lyon",
            ["Paris", ",", "Rome", ";", "Oslo", "Bern", "Lyon"],
        ),
        ("wordpiece-cased", "東京と大阪 google", ["東", "京", "と", "大", "阪", "google"]),
        ("unigram", "東京と大阪 google", ["東", "京", "と", "大", "阪", "google"]),
        ("byte-bpe", "Ame\u0301lie नमस्ते", ["Ame\u0301lie", "नमस्ते"]),
        (
            "wordpiece-uncased",
            "Ame\u0301 x",
            ["Ame\u0301", "x"],
        ),  # the mark that the normalizer drops is covered
        ("unigram", "½ …Acme", ["½", "…", "Acme"]),
        ("byte-bpe", "Hi 😀Oslo", ["Hi", "😀", "Oslo"]),
    ],
)
def test_words_are_what_pre_tokenizer_and_text_say(family: str, text: str, words: list[str]) -> None:
    assert surfaces(family, text) == words


def test_letter_case_is_that_of_the_whole_word() -> None:
    text = "oslo Oslo NATO McDonald 1999 A4 — İz éa"
    tokens = tokenizer("wordpiece-cased").encode([text])
    heads = np.flatnonzero(tokens.word)
    # lower, Title, UPPER, mixed, digit, Title (one capital, first), unknown, Title, lower
    assert tokens.case[heads].tolist() == [2, 3, 4, 5, 1, 3, 0, 3, 2]
    assert tokens.case[heads[3] + 1] == 5  # the second piece of McDonald has its word's case


@pytest.mark.parametrize(
    ("family", "before", "after", "pad"),
    [("wordpiece-cased", (2,), (3,), 0), ("byte-bpe", (0,), (2,), 1), ("unigram-split", (0,), (2,), 1)],
)
def test_special_ids(family: str, before: tuple[int, ...], after: tuple[int, ...], pad: int) -> None:
    engine_tokenizer = tokenizer(family)
    found = engine_tokenizer.prefix_ids, engine_tokenizer.suffix_ids, engine_tokenizer.pad_id
    assert found == (before, after, pad)
    assert engine_tokenizer.n_special == 2


def test_truncation_and_padding_of_the_file_are_switched_off() -> None:
    rust = rust_tokenizer("wordpiece-cased")
    rust.enable_truncation(4)
    rust.enable_padding(length=64)
    assert len(Tokenizer(rust).encode(["in in in in in in"])) == 6


def test_a_cut_lies_before_a_run_of_blanks_that_begins_with_a_space() -> None:
    parts = list(tokenizer("unigram", slab_chars=16).stream("Oslo Rome  \n Kyoto\n Ada"))
    first_and_last = [(int(p.start[p.solid].min()), int(p.end.max())) for p in parts]
    assert first_and_last == [(0, 9), (13, 23)]  # not at 12, whose space stands amid blanks


@pytest.mark.parametrize(
    ("content", "message"), [(None, "has no tokenizer.json"), ("{}", "is not a tokenizer")]
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BundleError, match=message):
        Tokenizer.from_file(file)
