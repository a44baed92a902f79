"""Look-ahead: arrays of documents in, chunks of windows out, bounded by tokens and not by documents.

A chunk holds the windows of many documents, or a part of a long one. Documents that end in it are whole; a
long document is read slab by slab, and what a later slab could still change is carried into the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine import windows as laying
from spark_ner.engine.decode import Words
from spark_ner.engine.tokenizer import SLAB_CHARS, Tokenizer, Tokens, concatenate
from spark_ner.engine.windows import Windows


@dataclass
class Documents:
    """One input array on its way through the engine: texts, words tagged so far, rows that failed."""

    texts: Sequence[str | None]
    words: list[Words] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)


@dataclass
class Chunk:
    """Windows to score together, the words they own, and the arrays that are complete once they are scored.

    `owner[i]` says which array and which document in it the token text `i` belongs to.
    """

    tokens: Tokens
    windows: Windows
    owner: list[tuple[Documents, int]]
    finished: list[Documents]

    def __post_init__(self) -> None:
        owned = np.zeros(len(self.tokens) + 1, np.int32)
        np.add.at(owned, self.windows.own_start, 1)
        np.add.at(owned, self.windows.own_end, -1)
        #: token rows of the words this chunk tags: (n_words,)
        self.word_rows = np.flatnonzero(self.tokens.word & (np.cumsum(owned[:-1]) > 0))
        self.tag = np.zeros(len(self.word_rows), np.int16)
        self.score = np.zeros(len(self.word_rows), np.float32)

    def text_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index into `owner` of token rows."""
        return np.searchsorted(self.tokens.offsets, rows, side="right") - 1

    def words_of(self, windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last-plus-one index into `word_rows` of the words each window owns."""
        low = np.searchsorted(self.word_rows, self.windows.own_start[windows])
        high = np.searchsorted(self.word_rows, self.windows.own_end[windows])
        return low, high

    def fail(self, window: int, reason: str) -> None:
        """Record one sentence for the document of a window; its other rows go on."""
        documents, index = self.owner[int(self.text_of(self.windows.start[window : window + 1])[0])]
        documents.errors.setdefault(index, reason)

    def hand_out(self) -> None:
        """Append the tagged words to the arrays their documents belong to."""
        tokens, rows = self.tokens, self.word_rows
        if not len(rows):
            return
        text = self.text_of(rows)
        all_rows, _, ends = tokens.words()
        end = ends[np.searchsorted(all_rows, rows)]
        document = np.fromiter((index for _, index in self.owner), np.int64, len(self.owner))
        holders: dict[int, tuple[Documents, list[int]]] = {}
        for position, (documents, _) in enumerate(self.owner):
            holders.setdefault(id(documents), (documents, []))[1].append(position)
        for documents, positions in holders.values():
            low, high = np.searchsorted(text, [positions[0], positions[-1] + 1])
            part = slice(int(low), int(high))
            documents.words.append(
                Words(
                    document[text[part]],
                    tokens.start[rows[part]],
                    end[part],
                    self.tag[part],
                    self.score[part],
                )
            )


class _Builder:
    """Collects token tables and their windows until they make a chunk."""

    def __init__(self, size: int, overlap: int) -> None:
        self.size, self.overlap = size, overlap
        self._clear()

    def _clear(self) -> None:
        self.n_tokens = 0
        self._tokens: list[Tokens] = []
        self._windows: list[Windows] = []
        self._owner: list[tuple[Documents, int]] = []
        self._finished: list[Documents] = []

    def add_documents(self, documents: Documents, indices: list[int], tokens: Tokens) -> None:
        """Whole documents, tokenized together."""
        counts = np.diff(tokens.offsets)
        if (counts <= self.size).all():
            self._append(tokens, [laying.whole(tokens.offsets)], [(documents, i) for i in indices])
            return
        for i, index in enumerate(indices):
            part = tokens.slice(int(tokens.offsets[i]), int(tokens.offsets[i + 1]))
            layout = laying.lay(part.word, size=self.size, overlap=self.overlap, final=True)
            self._append(part, [layout.windows], [(documents, index)])

    def add_part(self, documents: Documents, index: int, tokens: Tokens, windows: Windows) -> None:
        """A stretch of a long document with the windows laid over it."""
        self._append(tokens, [windows], [(documents, index)])

    def finish(self, documents: Documents) -> None:
        """All documents of this array are in this chunk or an earlier one."""
        self._finished.append(documents)

    def _append(self, tokens: Tokens, windows: list[Windows], owner: list[tuple[Documents, int]]) -> None:
        self._tokens.append(tokens)
        for part in windows:
            base = self.n_tokens
            self._windows.append(
                Windows(part.start + base, part.end + base, part.own_start + base, part.own_end + base)
            )
        self._owner.extend(owner)
        self.n_tokens += len(tokens)

    def build(self) -> Chunk | None:
        """The chunk collected so far, or None where there is nothing in it."""
        if not self._tokens and not self._finished:
            return None
        tokens = concatenate(self._tokens)
        windows = laying.merge(self._windows) if self._windows else laying.whole(np.zeros(1, np.int64))
        # A window that owns no word (blank text, fillers) is not worth the model's time.
        words_before = np.concatenate([[0], np.cumsum(tokens.word)])
        useful = np.flatnonzero(words_before[windows.own_end] > words_before[windows.own_start])
        windows = Windows(*(getattr(windows, n)[useful] for n in ("start", "end", "own_start", "own_end")))
        chunk = Chunk(tokens, windows, self._owner, self._finished)
        self._clear()
        return chunk


def lookahead(
    arrays: Iterable[Sequence[str | None]],
    tokenizer: Tokenizer,
    *,
    size: int,
    overlap: int,
    tokens: int,
    reject: Callable[[str], str | None] = lambda text: None,
) -> Iterator[Chunk]:
    """Chunks of about `tokens` tokens, crossing array borders; each array is finished by exactly one chunk.

    Args:
        arrays: documents; null ones are skipped.
        tokenizer: cuts them into tokens.
        size: window length in tokens without special ones.
        overlap: tokens two neighbouring windows share.
        tokens: how far to read ahead; a chunk may exceed it by one slab.
        reject: gives a sentence for a document that is not to be read.
    """
    builder = _Builder(size, overlap)
    for texts in arrays:
        documents = Documents(texts)
        for _ in _read(documents, tokenizer, builder, reject):
            if builder.n_tokens >= tokens and (chunk := builder.build()):
                yield chunk
        builder.finish(documents)
    if chunk := builder.build():
        yield chunk


def _read(
    documents: Documents, tokenizer: Tokenizer, builder: _Builder, reject: Callable[[str], str | None]
) -> Iterator[None]:
    """Feed one array to the builder; stops after each slab's worth of text, so that a chunk can be taken."""
    group: list[int] = []
    n_chars = 0

    def flush() -> None:
        nonlocal n_chars
        for indices, tokens in _encode(documents, list(group), tokenizer):
            builder.add_documents(documents, indices, tokens)
        group.clear()
        n_chars = 0

    for index, text in enumerate(documents.texts):
        if not text:
            continue
        if (reason := reject(text)) is not None:
            documents.errors[index] = reason
            continue
        if len(text) <= SLAB_CHARS:
            group.append(index)
            n_chars += len(text)
            if n_chars >= SLAB_CHARS:
                flush()
                yield
            continue
        flush()
        for _ in _read_long(documents, index, text, tokenizer, builder):
            yield
    flush()
    yield


def _encode(
    documents: Documents, indices: list[int], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], Tokens]]:
    """Tokens of some documents together; one that cannot be read leaves its sentence and nothing else."""
    if not indices:
        return
    try:
        tokens = tokenizer.encode([documents.texts[i] or "" for i in indices])
    except Exception as error:  # noqa: BLE001 - the row-level boundary, as in the engine
        if len(indices) > 1:
            for index in indices:
                yield from _encode(documents, [index], tokenizer)
        else:
            documents.errors[indices[0]] = _unreadable(error)
        return
    yield indices, tokens


def _stream(documents: Documents, index: int, text: str, tokenizer: Tokenizer) -> Iterator[Tokens]:
    """Slabs of one long document, up to where the tokenizer fails on it."""
    try:
        yield from tokenizer.stream(text)
    except Exception as error:  # noqa: BLE001 - the row-level boundary, as in the engine
        documents.errors[index] = _unreadable(error)


def _unreadable(error: Exception) -> str:
    # The library's message may hold the text: its type is all that is passed on.
    return f"the tokenizer failed on the document: {type(error).__name__}"


def _read_long(
    documents: Documents, index: int, text: str, tokenizer: Tokenizer, builder: _Builder
) -> Iterator[None]:
    """Feed one long document slab by slab; tokens of the last, unfinished window are carried on."""
    carried: list[Tokens] = []
    owned = 0
    slabs = _stream(documents, index, text, tokenizer)
    slab = next(slabs, None)
    while slab is not None:
        following = next(slabs, None)
        joined = concatenate([*carried, slab])
        held = joined.slice(0, len(joined))
        layout = laying.lay(
            held.word, size=builder.size, overlap=builder.overlap, final=following is None, owned=owned
        )
        builder.add_part(documents, index, held, layout.windows)
        carried, owned = [held.slice(layout.rest, len(held))], layout.owned
        slab = following
        yield
