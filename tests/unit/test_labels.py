"""Tag schemes: IOB1, IOB2, BILOU, BIOES, no prefix, hyphens, a type called O; the rest is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ner.errors import BundleError, LabelError
from spark_ner.labels import BEGIN, END, INSIDE, OUTSIDE, SINGLE, LabelScheme, iob2_tags

SCHEMES = {
    "IOB2": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "IOB1": ("O", "I-PER", "B-PER", "I-LOC"),
    "BIOES": ("O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
    "BILOU": ("O", "B-PER", "I-PER", "L-PER", "U-PER", "U-LOC"),
    "none": ("O", "PER", "LOC"),
    "hyphens": ("O", "B-tax-percent", "I-tax-percent", "B-tax-amount", "I-tax-amount"),
    "none-hyphens": ("O", "tax-percent", "tax-amount"),
    "type-O": ("O", "B-O", "I-O", "B-P", "I-P"),
}

Span = tuple[int, int, str]


def spans_of(scheme: LabelScheme, tags: list[str], first: list[int] | None = None) -> list[Span]:
    """(first word, last word, type) by the scheme under test."""
    starts = np.zeros(len(tags), bool)
    starts[[0, *(first or [])] if tags else []] = True
    ids = np.array([scheme.tags.index(t) for t in tags], np.int16)
    begin, end, kind = scheme.spans(ids, starts)
    return [(int(b), int(e), scheme.types[k]) for b, e, k in zip(begin, end, kind, strict=True)]


def by_the_book(tags: list[str], *, prefixed: bool, first: list[int]) -> list[Span]:
    """The same by a plain loop over words: as the CoNLL evaluation reads, with E/L and S/U closing a span."""
    found: list[Span] = []
    open_type, open_from = "", -1
    for i, tag in enumerate(tags):
        if tag == "O":
            prefix, kind = "O", ""
        else:
            prefix, _, kind = tag.partition("-") if prefixed else ("I", "", tag)
        continues = open_from >= 0 and prefix in "IEL" and kind == open_type and i not in first
        if open_from >= 0 and not continues:
            found.append((open_from, i - 1, open_type))
            open_from = -1
        if prefix != "O" and not continues:
            open_type, open_from = kind, i
        if open_from >= 0 and prefix in "ELSU":
            found.append((open_from, i, open_type))
            open_from = -1
    if open_from >= 0:
        found.append((open_from, len(tags) - 1, open_type))
    return found


@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=40)
@given(choices=st.lists(st.integers(0, 8), max_size=14), first=st.lists(st.integers(0, 13), max_size=3))
def test_spans_equal_a_plain_loop(name: str, choices: list[int], first: list[int]) -> None:
    scheme = LabelScheme.from_tags(SCHEMES[name])
    tags = [scheme.tags[c % len(scheme.tags)] for c in choices]
    first = [f for f in first if f < len(tags)]
    expected = by_the_book(tags, prefixed="none" not in name, first=first)
    assert spans_of(scheme, tags, first) == expected


@pytest.mark.parametrize(
    ("scheme", "tags", "expected"),
    [
        ("IOB2", "B-PER I-PER O I-LOC", [(0, 1, "PER"), (3, 3, "LOC")]),  # a stray I- starts an entity
        ("IOB2", "B-PER B-PER I-LOC", [(0, 0, "PER"), (1, 1, "PER"), (2, 2, "LOC")]),
        ("IOB1", "I-PER I-PER B-PER I-PER", [(0, 1, "PER"), (2, 3, "PER")]),
        (
            "BIOES",
            "B-PER I-PER E-PER I-PER S-PER S-PER",
            [(0, 2, "PER"), (3, 3, "PER"), (4, 4, "PER"), (5, 5, "PER")],
        ),
        ("BILOU", "L-PER L-PER U-LOC B-PER", [(0, 0, "PER"), (1, 1, "PER"), (2, 2, "LOC"), (3, 3, "PER")]),
        ("none", "PER PER LOC O LOC", [(0, 1, "PER"), (2, 2, "LOC"), (4, 4, "LOC")]),
        ("type-O", "B-O O B-P", [(0, 0, "O"), (2, 2, "P")]),
    ],
)
def test_known_sequences(scheme: str, tags: str, expected: list[Span]) -> None:
    assert spans_of(LabelScheme.from_tags(SCHEMES[scheme]), tags.split()) == expected


def test_no_entity_crosses_documents() -> None:
    scheme = LabelScheme.from_tags(SCHEMES["IOB2"])
    assert spans_of(scheme, ["B-PER", "I-PER"], [1]) == [(0, 0, "PER"), (1, 1, "PER")]
    assert spans_of(scheme, []) == []


def test_only_the_first_hyphen_divides() -> None:
    scheme = LabelScheme.from_tags(SCHEMES["hyphens"])
    assert scheme.types == ("tax-percent", "tax-amount")
    assert LabelScheme.from_tags(SCHEMES["none-hyphens"]).types == ("tax-percent", "tax-amount")


def test_positions_and_types_follow_the_ids() -> None:
    scheme = LabelScheme.from_tags(("B-X", "O", "I-Y", "E-X", "S-Y", "[PAD]"))
    assert scheme.position.tolist() == [BEGIN, OUTSIDE, INSIDE, END, SINGLE, OUTSIDE]
    assert scheme.type_id.tolist() == [0, -1, 1, 0, 1, -1]
    assert scheme.types == ("X", "Y")


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ((), "names no labels"),
        (("LABEL_0", "LABEL_1"), "its 2 classes are called LABEL_0"),
        (("O", "B-PER", "B-PER"), "tags appear twice in the model's label list: B-PER"),
        (("O", "B-PER", "Q-PER"), "tag 'Q-PER' has no known prefix .* while 'B-PER' has one"),
        (("O", "B-PER", "M-PER", "E-PER"), "tag 'M-PER' has no known prefix"),
        (("O", "B-PER", "MISC"), "tag 'MISC' has no known prefix"),
        (("O", "B-PER", "B-"), "tag 'B-' has no known prefix"),
        (("O", "b-PER", "i-PER"), "no tag has a known prefix .* 'b-PER'"),
        (("O", "X"), "name no entity type: O, X"),
    ],
)
def test_tags_that_follow_no_scheme_are_refused(tags: tuple[str, ...], message: str) -> None:
    with pytest.raises(LabelError, match=message) as caught:
        LabelScheme.from_tags(tags)
    assert isinstance(caught.value, BundleError)


def test_iob2_tags_have_one_fixed_order() -> None:
    assert iob2_tags(["PER", "LOC"]) == ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
