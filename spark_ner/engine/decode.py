"""Scores to tags a word, tags to entities: vectorised over all documents of an array at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine.spec import WordStrategy
from spark_ner.labels import LabelScheme
from spark_ner.types import Entities


@dataclass(frozen=True)
class Words:
    """Words with their tags, documents one after the other."""

    document: NDArray[np.int64]  # (n_words,) index in the array of documents
    start: NDArray[np.int32]  # code points of the document
    end: NDArray[np.int32]
    tag: NDArray[np.int16]
    score: NDArray[np.float32]  # probability of the tag

    @classmethod
    def concatenate(cls, parts: Sequence[Words]) -> Words:
        """Words of several chunks, in order."""
        if not parts:
            spans = np.zeros(0, np.int32)
            return cls(np.zeros(0, np.int64), spans, spans, np.zeros(0, np.int16), np.zeros(0, np.float32))
        names = ("document", "start", "end", "tag", "score")
        return cls(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities over the last axis, (…, n_tags)."""
    powers: NDArray[np.float32] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances: NDArray[np.float32] = powers / powers.sum(axis=-1, keepdims=True, dtype=np.float32)
    return chances


def word_tags(
    logits: NDArray[np.float32], of_word: NDArray[np.int64], *, strategy: WordStrategy
) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Tag and probability of each word from the scores of its tokens.

    Args:
        logits: (n_tokens, n_tags) of the tokens of the words, in order; each word has at least one.
        of_word: (n_tokens,) index of the word a token belongs to, rising from 0 without gaps.
        strategy: `first` reads the first token, `average` the mean probability, `max` the surest token.
    """
    heads = np.flatnonzero(np.diff(of_word, prepend=-1))
    if strategy == "first":
        chosen = softmax(logits[heads])
    elif strategy == "average":
        counts = np.diff(np.append(heads, len(of_word)))
        sums = np.add.reduceat(softmax(logits), heads, axis=0)
        chosen = (sums / counts[:, None]).astype(np.float32)
    else:
        chances = softmax(logits)
        # Within each word the surest token comes first; ties go to the earlier one.
        order = np.lexsort((-chances.max(axis=1), of_word))
        chosen = chances[order[heads]]
    tags = chosen.argmax(axis=1)
    return tags.astype(np.int16), chosen[np.arange(len(tags)), tags].astype(np.float32)


def _means(
    values: NDArray[np.float32], head: NDArray[np.int64], tail: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Mean of values[head:tail + 1], run by run; the words before a run leave no rounding in it."""
    if not len(head):
        return np.zeros(0, np.float32)
    edges = np.stack([head, tail + 1], axis=1).ravel()
    sums = np.add.reduceat(np.append(values, 0).astype(np.float64), edges)[::2]
    means: NDArray[np.float32] = (sums / (tail + 1 - head)).astype(np.float32)
    return means


def decode(
    texts: Sequence[str | None],
    words: Words,
    scheme: LabelScheme,
    *,
    thresholds: Mapping[str, float],
    errors: Mapping[int, str],
) -> Entities:
    """Entities of an array of documents; a document in `errors` gives none and keeps its sentence.

    An entity's score is the mean probability of its words; one below its label's threshold is dropped.
    """
    first = np.diff(words.document, prepend=-1) != 0
    head, tail, kind = scheme.spans(words.tag, first)
    score = _means(words.score, head, tail)
    keep = np.ones(len(head), bool)
    if thresholds:
        floor = np.array([thresholds.get(name, 0.0) for name in scheme.types], np.float32)
        keep &= score >= floor[kind]
    document = words.document[head]
    if errors:
        keep &= ~np.isin(document, np.fromiter(errors, np.int64, len(errors)))
    head, tail, kind, score, document = head[keep], tail[keep], kind[keep], score[keep], document[keep]
    start, end = words.start[head], words.end[tail]
    surfaces = [
        (texts[d] or "")[s:e] for d, s, e in zip(document.tolist(), start.tolist(), end.tolist(), strict=True)
    ]
    counts = np.bincount(document, minlength=len(texts)) if len(texts) else np.zeros(0, np.int64)
    return Entities(
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        start=start,
        end=end,
        text=surfaces,
        label=kind.astype(np.int16),
        score=score,
        labels=scheme.types,
        valid=np.array([t is not None and i not in errors for i, t in enumerate(texts)], bool),
        errors=dict(errors),
    )
