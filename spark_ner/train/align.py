"""Spans to targets: for each of the engine's words the set of tags that would be right.

A target is a bit mask over the tags: one bit where the annotation is certain, several where a set does not
mark a type (its O may be O or MISC), none where the token is left out of the loss.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine.tokenizer import Tokens
from spark_ner.labels import LabelScheme, iob2_tags
from spark_ner.train.corpora import TYPES, UNSURE
from spark_ner.train.data import Labeled

TAGS = iob2_tags(TYPES)
SCHEME = LabelScheme.from_tags(TAGS)


def targets(tokens: Tokens, text: Labeled, annotates: Set[str] = frozenset(TYPES)) -> NDArray[np.uint16]:
    """(n_tokens,) bit masks of the right tags for the tokens of one text; 0 is left out of the loss.

    Only the first token of a word carries a target, and a token of blanks (a line break), which is O. The
    first word of a span is B-, the others I-; a word that a span covers in part, or that lies in an UNSURE
    span, is left out.
    """
    masks = np.where(tokens.solid, 0, 1 << TAGS.index("O")).astype(np.uint16)
    first, start, end = tokens.words()
    if not len(first):
        return masks
    words = np.full(len(first), _outside(annotates), np.uint16)
    for span in text.spans:
        low = int(np.searchsorted(end, span.start, side="right"))
        high = int(np.searchsorted(start, span.end, side="left"))
        if span.label == UNSURE:
            words[low:high] = 0
            continue
        for index in range(low, high):
            whole = start[index] >= span.start and end[index] <= span.end
            tag = f"{'B' if index == low else 'I'}-{span.label}"
            words[index] = 1 << TAGS.index(tag) if whole else 0
    masks[first] = words
    return masks


def _outside(annotates: Set[str]) -> int:
    """The mask of a word in no span: O, or a tag of a type that the set does not mark."""
    kinds = [tag.partition("-")[2] for tag in TAGS]
    return sum(1 << i for i, kind in enumerate(kinds) if not kind or kind not in annotates)
