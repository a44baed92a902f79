"""Classes of characters, code points, and lone surrogates."""

from __future__ import annotations

import numpy as np
import pytest

from spark_ner.engine import text as chars
from spark_ner.engine.text import clean, code_points, decoded


def test_code_points_count_characters_beyond_the_bmp_once() -> None:
    assert code_points("a😀\ud800é").tolist() == [0x61, 0x1F600, 0xD800, 0xE9]


@pytest.mark.parametrize(
    ("character", "wanted"),
    [
        (" ", chars.BLANK),
        ("\u00a0", chars.BLANK),
        ("\u3000", chars.BLANK),
        ("\u2028", chars.BLANK),
        ("\x85", chars.BLANK),
        ("\u200b", 0),  # zero-width: no blank, nothing at all
        ("A", chars.LETTER | chars.UPPER),
        ("ǅ", chars.LETTER | chars.UPPER),
        ("ß", chars.LETTER | chars.LOWER),
        ("İ", chars.LETTER | chars.UPPER),
        ("ª", chars.LETTER),
        ("7", chars.DIGIT),
        ("½", chars.DIGIT),
        ("\u0301", chars.MARK),
        ("\ufe0f", chars.MARK),
        (",", chars.PUNCTUATION),
        ("😀", chars.PUNCTUATION),
        ("東", chars.LETTER | chars.UNSPACED),
        ("ก", chars.LETTER | chars.UNSPACED),
        ("\u0e31", chars.MARK | chars.UNSPACED),
        ("한", chars.LETTER),
        ("ع", chars.LETTER),
    ],
)
def test_classes(character: str, wanted: int) -> None:
    bits = int(chars.classes(code_points(character))[0])
    assert bits & 0xFF == wanted
    assert bits & 1 << 15  # looked up once


def test_classes_of_many_characters_at_once() -> None:
    found = chars.classes(code_points("Ab 1"))
    assert (found & 0xFF).tolist() == [
        chars.LETTER | chars.UPPER,
        chars.LETTER | chars.LOWER,
        chars.BLANK,
        chars.DIGIT,
    ]
    assert chars.classes(np.zeros(0, np.uint32)).shape == (0,)


def test_clean_replaces_lone_surrogates_one_for_one() -> None:
    assert clean("ok \ud800\udfff Turin😀") == "ok \ufffd\ufffd Turin😀"
    text = "unchanged 😀"
    assert clean(text) is text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("Köln 😀".encode(), "Köln 😀"),
        (b"K\xf6ln", "K\ufffdln"),
        (b"a\xed\xa0\x80b", "a\ufffdb"),  # a lone surrogate, as UTF-8 would have written it
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
        (b"cut \xf0\x9f\x98", "cut \ufffd"),
    ],
)
def test_each_unit_that_is_no_text_counts_once(raw: bytes, text: str) -> None:
    assert decoded(raw) == text
