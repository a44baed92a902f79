"""A model in training as a tagger: whole texts in, spans out, without the engine's windows and batches.

For dev scores between epochs only; what is published is measured through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from spark_ner.engine.tokenizer import Tokenizer, Tokens
from spark_ner.labels import LabelScheme
from spark_ner.train.data import Span
from spark_ner.train.loop import evaluating
from spark_ner.train.objective import model_inputs
from spark_ner.train.texts import Example, pad

_PIECE_TOKENS = 400
_BATCH_TEXTS = 16

Piece = tuple[int, int]  # rows of the token table that the model sees together


def tagger(
    model: nn.Module,
    tokenizer: Tokenizer,
    scheme: LabelScheme,
    *,
    letter_case: bool = True,
    on_batch: Callable[[], None] = lambda: None,
) -> Callable[[Sequence[str]], list[list[Span]]]:
    """A callable from texts to spans; a text over 400 tokens is cut where a word starts, without overlap."""

    def best_tags(made: list[Example]) -> NDArray[np.int64]:
        device = next(model.parameters()).device
        inputs = model_inputs(pad(made, tokenizer.pad_id), device, letter_case=letter_case)
        tags: NDArray[np.int64] = model(**inputs).logits.argmax(-1).cpu().numpy()
        on_batch()
        return tags

    def tag(texts: Sequence[str]) -> list[list[Span]]:
        tokens = tokenizer.encode(texts)
        order = sorted(_pieces(tokens), key=lambda piece: piece[1] - piece[0])
        n_prefix = len(tokenizer.prefix_ids)
        best = np.zeros(len(tokens), np.int64)
        with evaluating(model):
            for at in range(0, len(order), _BATCH_TEXTS):
                pieces = order[at : at + _BATCH_TEXTS]
                rows = best_tags([_example(tokenizer, tokens, piece) for piece in pieces])
                for (low, high), row in zip(pieces, rows, strict=True):
                    best[low:high] = row[n_prefix : n_prefix + high - low]
        return _spans(tokens, best, len(texts), scheme)

    return tag


def _pieces(tokens: Tokens) -> list[Piece]:
    pieces: list[Piece] = []
    for low, high in zip(tokens.offsets[:-1].tolist(), tokens.offsets[1:].tolist(), strict=True):
        while low < high:
            stop = min(high, low + _PIECE_TOKENS)
            while low + 1 < stop < high and not tokens.word[stop]:
                stop -= 1
            pieces.append((low, stop))
            low = stop
    return pieces


def _example(tokenizer: Tokenizer, tokens: Tokens, piece: Piece) -> Example:
    low, high = piece
    ids = np.concatenate([tokenizer.prefix_ids, tokens.ids[low:high], tokenizer.suffix_ids]).astype(np.int32)
    case = np.pad(tokens.case[low:high], (len(tokenizer.prefix_ids), len(tokenizer.suffix_ids)))
    return Example("", ids, case, np.zeros(len(ids), np.uint16))


def _spans(tokens: Tokens, best: NDArray[np.int64], n_texts: int, scheme: LabelScheme) -> list[list[Span]]:
    spans: list[list[Span]] = [[] for _ in range(n_texts)]
    first, start, end = tokens.words()
    if not len(first):
        return spans
    owner = np.searchsorted(tokens.offsets, first, side="right") - 1
    begins = np.append(True, owner[1:] != owner[:-1])
    for a, b, kind in zip(*scheme.spans(best[first], begins), strict=True):
        spans[owner[a]].append(Span(int(start[a]), int(end[b]), scheme.types[kind]))
    return spans
