"""Sentences to training batches: joined into texts of mixed length, anew every epoch from the seed.

A tagger trained on single sentences falls on whole documents, so some texts are one sentence and others
hundreds of tokens, in document order where the corpus has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import ConfigError
from spark_ner.train.align import NO_TARGET, Targets
from spark_ner.train.corpora import Corpus
from spark_ner.train.data import Document, Labeled, join

_DEV_BLOCK = 16  # sentences in a row that go to the held-out part together


@dataclass(frozen=True, kw_only=True)
class MixConfig:
    """How texts are made of sentences; shares are probabilities, lengths are in tokens."""

    single_share: float = 0.5  # texts of one sentence; the rest have log-uniform lengths
    shortest_tokens: int = 10
    longest_tokens: int = 500
    line_share: float = 0.6  # joined texts whose sentences stand one a line; in the others blanks divide them
    wrap_share: float = 0.1  # texts broken into lines at a width of 30 to 100 characters, in mid-sentence
    lower_share: float = 0.05  # sentences in lower case
    upper_share: float = 0.06
    title_share: float = 0.03
    caseless_share: float = 0.10  # texts whose letter-case feature is dropped
    held_out: float = 0.04

    def __post_init__(self) -> None:
        for name in (
            "single_share",
            "line_share",
            "wrap_share",
            "lower_share",
            "upper_share",
            "title_share",
            "caseless_share",
            "held_out",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.shortest_tokens <= self.longest_tokens <= 510:
            raise ConfigError(
                "0 < shortest_tokens <= longest_tokens <= 510 wanted, got "
                f"{self.shortest_tokens} and {self.longest_tokens}"
            )


@dataclass(frozen=True)
class Example:
    """One text as the model sees it, special tokens included; `name` says where it came from."""

    name: str
    ids: NDArray[np.int32]
    case: NDArray[np.uint8]
    target: NDArray[np.uint16]  # rows of `Targets.allowed`


@dataclass(frozen=True)
class Batch:
    """Padded examples: (n_texts, n_tokens) arrays."""

    names: tuple[str, ...]
    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    target: NDArray[np.int64]


def split(
    corpus: Corpus, documents: Sequence[Document], share: float
) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents: blocks of sentences by a hash of set and position, always the same."""
    train: list[Document] = []
    dev: list[Document] = []
    at = 0
    for document in documents:
        for low in range(0, len(document), _DEV_BLOCK):
            block = crc32(f"{corpus.name}:{(at + low) // _DEV_BLOCK}".encode()) % 1000
            part = document[low : low + _DEV_BLOCK]
            (dev if block < share * 1000 else train).append(part)
        at += len(document)
    return train, dev


def compose(
    corpus: Corpus,
    documents: Sequence[Document],
    sizes: dict[str, int],
    *,
    mix: MixConfig,
    rng: np.random.Generator,
) -> list[Labeled]:
    """One epoch's texts of a corpus: sentences in order (shuffled where it has none), re-cased, joined.

    `sizes` are the tokens of each sentence's text: a joined text stays within `longest_tokens`.
    """
    runs = [list(d) for d in documents] if corpus.ordered else [[s for d in documents for s in d]]
    texts: list[Labeled] = []
    for run, times in product(runs, range(ceil(corpus.share))):
        chance = corpus.share - times
        if not corpus.ordered:
            rng.shuffle(run)
        at = 0
        while at < len(run):
            stop, wanted = at + 1, _draw_length(mix, rng)
            total = sizes[run[at].text]
            while stop < len(run) and total < wanted:
                more = 1 + sizes[run[stop].text]  # with a line break
                if total + more > mix.longest_tokens:
                    break
                total, stop = total + more, stop + 1
            if chance >= 1 or rng.random() < chance:
                separator = "\n" if rng.random() < mix.line_share else " "
                text = join([recase(s, mix, rng) for s in run[at:stop]], separator)
                texts.append(
                    wrap(text, int(rng.integers(30, 101))) if rng.random() < mix.wrap_share else text
                )
            at = stop
    return texts


def _draw_length(mix: MixConfig, rng: np.random.Generator) -> int:
    if rng.random() < mix.single_share:
        return 0
    return int(np.exp(rng.uniform(np.log(mix.shortest_tokens), np.log(mix.longest_tokens))))


def recase(sentence: Labeled, mix: MixConfig, rng: np.random.Generator) -> Labeled:
    """The sentence as it is, or now and then in lower, upper or title case; every span keeps its place."""
    draw = rng.random()
    if draw < mix.lower_share:
        change = [c.lower() for c in sentence.text]
    elif draw < mix.lower_share + mix.upper_share:
        change = [c.upper() for c in sentence.text]
    elif draw < mix.lower_share + mix.upper_share + mix.title_share:
        before = " " + sentence.text
        change = [c.upper() if b == " " else c for b, c in zip(before, sentence.text, strict=False)]
    else:
        return sentence
    # A letter whose other case is longer (ß, İ) stays, so that offsets hold.
    text = "".join(n if len(n) == 1 else c for n, c in zip(change, sentence.text, strict=True))
    return Labeled(text, sentence.spans)


def wrap(text: Labeled, width: int) -> Labeled:
    """The text with line breaks in place of some blanks, so that lines have at most `width` characters."""
    too_long = re.compile(rf"(?=.{{{width + 1}}})(.{{1,{width}}}) ")
    return Labeled(too_long.sub("\\1\n", text.text), text.spans)


def examples(
    corpus: Corpus,
    texts: Sequence[Labeled],
    tokenizer: Tokenizer,
    *,
    targets: Targets,
    caseless: NDArray[np.bool_],
    limit: int = 510,
) -> list[Example]:
    """Texts as the model sees them, cut at `limit` tokens; `caseless` texts have no letter case.

    A text in which no token has a target is left out.
    """
    annotates = frozenset(corpus.annotates) or None
    tokens = tokenizer.encode([t.text for t in texts])
    prefix, suffix = tokenizer.prefix_ids, tokenizer.suffix_ids
    made = []
    for index, text in enumerate(texts):
        piece = tokens.slice(int(tokens.offsets[index]), int(tokens.offsets[index + 1]))
        target = targets.of(piece, text, annotates)[:limit]
        case = piece.case[:limit] * np.uint8(not caseless[index])
        made.append(
            Example(
                f"{corpus.name}:{index}",
                np.concatenate([prefix, piece.ids[:limit], suffix]).astype(np.int32),
                np.pad(case, (len(prefix), len(suffix))),
                np.pad(target, (len(prefix), len(suffix)), constant_values=NO_TARGET),
            )
        )
    return [e for e in made if e.target.any()]


def group(
    length: NDArray[np.int64], *, batch_tokens: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Rows in batches of like length under a budget of padded tokens, in random order.

    Each row is in one batch; a row longer than the budget is a batch of its own.
    """
    order = np.argsort(length + rng.uniform(0, 1, len(length)), kind="stable")
    cuts = [0]
    for at, n in enumerate(length[order].tolist()):
        if at > cuts[-1] and n * (at + 1 - cuts[-1]) > batch_tokens:
            cuts.append(at)
    parts = np.split(order, cuts[1:]) if len(order) else []
    return [parts[i] for i in rng.permutation(len(parts)).tolist()]


def pad(rows: Sequence[Example], pad_id: int) -> Batch:
    """Examples side by side, padded to the longest."""
    shape = (len(rows), max(len(e.ids) for e in rows))
    ids = np.full(shape, pad_id, np.int64)
    attention, case, target = (np.zeros(shape, np.int64) for _ in range(3))
    for row, example in enumerate(rows):
        n = len(example.ids)
        ids[row, :n], attention[row, :n] = example.ids, 1
        case[row, :n], target[row, :n] = example.case, example.target
    return Batch(tuple(e.name for e in rows), ids, attention, case, target)
