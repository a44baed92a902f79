"""examples/documents.jsonl has what the demo and the tests rely on."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def documents(examples: Path) -> list[dict[str, str | None]]:
    lines = examples.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return [json.loads(line) for line in lines]


def test_columns_and_ids(documents: list[dict[str, str | None]]) -> None:
    assert {tuple(document) for document in documents} == {("id", "kind", "lang", "text")}
    assert len({document["id"] for document in documents}) == len(documents) == 62


def test_every_kind_is_there(documents: list[dict[str, str | None]]) -> None:
    kinds = {document["kind"] for document in documents}
    assert kinds == {"news", "ticket", "contract", "email", "chat", "chronicle", "edge"}


def test_one_null_one_empty_and_one_blank(documents: list[dict[str, str | None]]) -> None:
    texts = [document["text"] for document in documents]
    assert texts.count(None) == 1
    assert texts.count("") == 1
    assert [text for text in texts if text and not text.strip()] == [" \t\r\n \u3000 "]


def test_one_document_is_very_long(documents: list[dict[str, str | None]]) -> None:
    words = sorted(len((document["text"] or "").split()) for document in documents)
    assert words[-1] > 6000
    assert words[-2] < 200


@pytest.mark.parametrize(
    ("what", "characters"),
    [
        ("beyond the basic plane", "😱𝐁"),
        ("emoji joined by zero-width joiners", "\U0001f468\u200d\U0001f469"),
        ("CJK", "東京北京"),
        ("Hangul, Arabic, Hebrew, Thai", "서مשก"),
        ("a combining acute", "e\u0301"),
        ("CRLF", "\r\n"),
        ("zero-width and no-break", "\u200b\ufeff\u00ad\u00a0\u2011"),
    ],
)
def test_odd_characters_are_there(documents: list[dict[str, str | None]], what: str, characters: str) -> None:
    everything = "".join(document["text"] or "" for document in documents)
    assert [c for c in characters if c not in everything] == [], what


def test_invisible_characters_are_escaped_in_the_file(examples: Path) -> None:
    raw = examples.read_text(encoding="utf-8").replace("\n", "")
    invisible = {f"U+{ord(c):04X}" for c in raw if unicodedata.category(c) in {"Cf", "Cc", "Zl", "Zp"}}
    assert invisible == set()
    assert "\u0301" not in raw
