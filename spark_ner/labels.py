"""Tag schemes to and from entity types: IOB1, IOB2, BILOU, BIOES, and tags without prefix.

A tag is `O`, or a prefix, a hyphen and a type (`B-PER`); only the first hyphen divides, so a type may hold
hyphens (`B-tax-percent`) and may even be called `O` (`B-O`). A set in which no tag has a known prefix is a
scheme without prefixes: neighbouring words of one type are one entity. A set that mixes both is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_ner.errors import LabelError

OUTSIDE, BEGIN, INSIDE, END, SINGLE = range(5)

_PREFIXES = {"B": BEGIN, "I": INSIDE, "E": END, "L": END, "S": SINGLE, "U": SINGLE}
_SPECIAL_TAGS = frozenset({"O", "X", "[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "PAD"})


@dataclass(frozen=True)
class LabelScheme:
    """The tags a model scores, in id order, and the entity types behind them.

    `position[tag_id]` is OUTSIDE, BEGIN, INSIDE, END or SINGLE; `type_id[tag_id]` indexes `types`, or is -1.
    """

    tags: tuple[str, ...]
    types: tuple[str, ...]
    position: NDArray[np.int8] = field(repr=False, compare=False)
    type_id: NDArray[np.int16] = field(repr=False, compare=False)

    @classmethod
    def from_tags(cls, tags: Sequence[str]) -> LabelScheme:
        """Read the scheme off the tags in id order; LabelError where they follow none."""
        if not tags:
            raise LabelError("the model names no labels")
        if all(tag.startswith("LABEL_") for tag in tags):
            raise LabelError(
                f"the model names no labels: its {len(tags)} classes are called LABEL_0 …; "
                "set id2label in its config.json"
            )
        if len(set(tags)) != len(tags):
            twice = sorted({tag for tag in tags if list(tags).count(tag) > 1})
            raise LabelError(f"tags appear twice in the model's label list: {', '.join(twice)}")
        named = [tag for tag in tags if tag not in _SPECIAL_TAGS]
        prefixed = [tag for tag in named if _has_prefix(tag)]
        if prefixed and len(prefixed) != len(named):
            strange = next(tag for tag in named if not _has_prefix(tag))
            raise LabelError(
                f"tag {strange!r} has no known prefix (B, I, E, L, S, U) while {prefixed[0]!r} has one"
            )
        if not prefixed and (strange_pair := _unknown_prefixes(named)):
            raise LabelError(f"no tag has a known prefix (B, I, E, L, S, U): got {strange_pair}")
        types: list[str] = []
        position = np.zeros(len(tags), np.int8)
        type_id = np.full(len(tags), -1, np.int16)
        for index, tag in enumerate(tags):
            if tag in _SPECIAL_TAGS:
                continue
            prefix, _, name = tag.partition("-") if prefixed else ("I", "", tag)
            if name not in types:
                types.append(name)
            position[index] = _PREFIXES[prefix]
            type_id[index] = types.index(name)
        if not types:
            raise LabelError(f"the model's tags name no entity type: {', '.join(tags)}")
        return cls(tags=tuple(tags), types=tuple(types), position=position, type_id=type_id)

    def spans(
        self, tag_ids: NDArray[np.integer], first: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]:
        """Entities of a run of words, as (index of first word, index of last word, type id) arrays.

        Args:
            tag_ids: (n_words,) tag of each word, documents one after the other.
            first: (n_words,) true on the first word of each document; no entity crosses it.

        A word begins an entity when its tag is B or S, or is inside and cannot continue the word before it
        (outside, another type, an ended entity): a stray I- starts an entity, as in the CoNLL evaluation.
        """
        place, kind = self.position[tag_ids], self.type_id[tag_ids]
        inside = place != OUTSIDE
        joins = np.zeros(len(place), bool)
        if len(place) > 1:
            before, after = place[:-1], place[1:]
            joins[1:] = (
                inside[1:]
                & inside[:-1]
                & (kind[1:] == kind[:-1])
                & ~first[1:]
                & (after != BEGIN)
                & (after != SINGLE)
                & (before != END)
                & (before != SINGLE)
            )
        begins = inside & ~joins
        ends = inside.copy()
        ends[:-1] &= ~joins[1:]
        begin_at = np.flatnonzero(begins)
        return begin_at, np.flatnonzero(ends), kind[begin_at]


def _has_prefix(tag: str) -> bool:
    prefix, hyphen, name = tag.partition("-")
    return bool(hyphen and name) and prefix in _PREFIXES


def _unknown_prefixes(tags: Sequence[str]) -> str:
    """Two tags such as `b-PER, i-PER`: one type behind two letters, so a scheme, not hyphened types."""
    seen: dict[str, str] = {}
    for tag in tags:
        letter, hyphen, name = tag.partition("-")
        if hyphen and len(letter) == 1 and seen.setdefault(name, tag) != tag:
            return f"{seen[name]!r}, {tag!r}"
    return ""


def iob2_tags(types: Sequence[str]) -> tuple[str, ...]:
    """The tag list of IOB2 for these types, in one fixed order: O, then B- and I- of each type."""
    return ("O", *(f"{prefix}-{name}" for name in types for prefix in ("B", "I")))
