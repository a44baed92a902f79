"""A model in training as a tagger: whole texts in, spans out, without the engine's windows and batches.

For dev scores between epochs only; what is published is measured through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from spark_ner.engine.tokenizer import Tokenizer, Tokens
from spark_ner.train.align import SCHEME
from spark_ner.train.data import Span
from spark_ner.train.loop import model_inputs
from spark_ner.train.texts import Example, pad

if TYPE_CHECKING:
    from transformers import BertForTokenClassification

_PIECE_TOKENS = 400
_BATCH_TEXTS = 16

Piece = tuple[int, int]  # rows of the token table that the model sees together


def tagger(
    model: BertForTokenClassification, tokenizer: Tokenizer
) -> Callable[[Sequence[str]], list[list[Span]]]:
    """A callable from texts to spans; a text over 400 tokens is cut where a word starts, without overlap."""

    def tag(texts: Sequence[str]) -> list[list[Span]]:
        model.eval()  # type: ignore[no-untyped-call]
        tokens = tokenizer.encode(texts)
        order = sorted(_pieces(tokens), key=lambda piece: piece[1] - piece[0])
        best = np.zeros(len(tokens), np.int64)
        for at in range(0, len(order), _BATCH_TEXTS):
            group = order[at : at + _BATCH_TEXTS]
            for (low, high), tags in zip(group, _tags(model, tokenizer, tokens, group), strict=True):
                best[low:high] = tags
        return _spans(tokens, best, len(texts))

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


def _tags(
    model: BertForTokenClassification, tokenizer: Tokenizer, tokens: Tokens, group: Sequence[Piece]
) -> list[NDArray[np.int64]]:
    """The best tag of each token of each piece."""
    n_prefix = len(tokenizer.prefix_ids)
    made = []
    for low, high in group:
        ids = np.concatenate([tokenizer.prefix_ids, tokens.ids[low:high], tokenizer.suffix_ids]).astype(
            np.int32
        )
        case = np.pad(tokens.case[low:high], (n_prefix, len(tokenizer.suffix_ids)))
        made.append(Example("", ids, case, np.zeros(len(ids), np.uint16)))
    with torch.inference_mode():
        best = model(**model_inputs(pad(made, tokenizer.pad_id))).logits.argmax(-1).numpy()
    return [row[n_prefix : n_prefix + high - low] for row, (low, high) in zip(best, group, strict=True)]


def _spans(tokens: Tokens, best: NDArray[np.int64], n_texts: int) -> list[list[Span]]:
    spans: list[list[Span]] = [[] for _ in range(n_texts)]
    first, start, end = tokens.words()
    if not len(first):
        return spans
    owner = np.searchsorted(tokens.offsets, first, side="right") - 1
    begins = np.append(True, owner[1:] != owner[:-1])
    for a, b, kind in zip(*SCHEME.spans(best[first], begins), strict=True):
        spans[owner[a]].append(Span(int(start[a]), int(end[b]), SCHEME.types[kind]))
    return spans
