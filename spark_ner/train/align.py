"""Spans to targets: for each of the engine's words the set of tags that would be right.

A target is a row of a table over the tags: row 0 for tokens that are left out of the loss, a row for each
tag where the annotation is certain, and a row for each way in which sets leave types unmarked (where MISC is
not marked, a word in no span may be O or MISC).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine.tokenizer import Tokens
from spark_ner.labels import LabelScheme, iob2_tags
from spark_ner.train.corpora import UNSURE
from spark_ner.train.data import Labeled

NO_TARGET = 0


class Targets:
    """The tags of a training, and what each target allows.

    Attributes:
        scheme: the tags, IOB2, in id order; the same in every process.
        allowed: (n_targets, n_tags) booleans. Row 0 has none, row 1 + i has tag i alone, later rows have the
            tags that a word outside of all spans may have in a set that does not mark every type.
    """

    def __init__(self, types: Sequence[str], annotated: Iterable[Set[str]] = ()) -> None:
        """`annotated` are the types that each set marks; a set that marks all needs no entry."""
        self.scheme = LabelScheme.from_tags(iob2_tags(types))
        self._kinds = [tag.partition("-")[2] for tag in self.scheme.tags]
        rows = [np.zeros(len(self._kinds), bool), *np.eye(len(self._kinds), dtype=bool)]
        self._outside: dict[frozenset[str], int] = {frozenset(types): 1 + self.scheme.tags.index("O")}
        for marked in sorted({frozenset(m) & frozenset(types) for m in annotated}, key=sorted):
            if marked not in self._outside:
                self._outside[marked] = len(rows)
                rows.append(np.array([not kind or kind not in marked for kind in self._kinds]))
        self.allowed: NDArray[np.bool_] = np.stack(rows)

    def of(self, tokens: Tokens, text: Labeled, annotates: Set[str] | None = None) -> NDArray[np.uint16]:
        """(n_tokens,) targets of the tokens of one text.

        Only the first token of a word carries a target, and a token of blanks (a line break), which is O. The
        first word of a span is B-, the others I-; a word that a span covers in part, or that lies in an
        UNSURE span, is left out.

        Args:
            tokens: of that text alone.
            text: the text and its spans.
            annotates: the types that its set marks, one of those given at construction; None is all.
        """
        outside = 1 + self.scheme.tags.index("O")
        found = np.where(tokens.solid, NO_TARGET, outside).astype(np.uint16)
        first, start, end = tokens.words()
        if not len(first):
            return found
        marked = frozenset(self.scheme.types) & (annotates if annotates is not None else set(self._kinds))
        words = np.full(len(first), self._outside[frozenset(marked)], np.uint16)
        for span in text.spans:
            low = int(np.searchsorted(end, span.start, side="right"))
            high = int(np.searchsorted(start, span.end, side="left"))
            if span.label == UNSURE:
                words[low:high] = NO_TARGET
                continue
            for index in range(low, high):
                whole = start[index] >= span.start and end[index] <= span.end
                tag = f"{'B' if index == low else 'I'}-{span.label}"
                words[index] = 1 + self.scheme.tags.index(tag) if whole else NO_TARGET
        found[first] = words
        return found
