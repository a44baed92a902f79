"""Documents to tokens: slabs of text into the Rust tokenizer, numpy columns out, offsets of the original.

A long document is cut into slabs before it is tokenized (one call on 10 MB of text takes over 1 GB). A cut
lies before a run of blanks that begins with a plain space, where every pre-tokenizer cuts anyway
(SentencePiece's cuts nowhere else); in text without them two slabs overlap and are joined where both agree on
several tokens in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray

from spark_ner.engine import text as chars
from spark_ner.engine.words import find_words
from spark_ner.errors import BundleError

TokenFeature = Literal["none", "letter_case"]

SLAB_CHARS = 65_536
_OVERLAP_CHARS = 4_096  # shared by neighbouring slabs of a text without blanks
_AGREE_TOKENS = 4  # tokens in a row on which two slabs must agree to be joined


@dataclass(frozen=True)
class Tokens:
    """Tokens of several texts, one text after the other; text `i` owns rows `offsets[i]:offsets[i + 1]`.

    `start` and `end` are code points of the original text, blanks at either side trimmed off. `word` is true
    on the first token of each word; a token of blanks or of nothing (`solid` false) belongs to no word.
    """

    offsets: NDArray[np.int64]  # (n_texts + 1,)
    ids: NDArray[np.int32]  # (n_tokens,)
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    word: NDArray[np.bool_]
    solid: NDArray[np.bool_]
    case: NDArray[np.uint8]  # letter case of the token's word, CASE_*

    def __len__(self) -> int:
        return len(self.ids)

    def words(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """(row of the first token, start, end) of each word, (n_words,) each, all texts in order."""
        rows = np.flatnonzero(self.word)
        if not len(rows):
            return rows, self.start[:0], self.end[:0]
        return rows, self.start[rows], np.maximum.reduceat(np.where(self.solid, self.end, 0), rows)

    def slice(self, low: int, high: int) -> Tokens:
        """Rows low:high as one text."""
        return Tokens(
            offsets=np.array([0, high - low], np.int64),
            ids=self.ids[low:high],
            start=self.start[low:high],
            end=self.end[low:high],
            word=self.word[low:high],
            solid=self.solid[low:high],
            case=self.case[low:high],
        )

    def shift(self, by: int) -> Tokens:
        """The same tokens, offsets moved by a number of code points."""
        return Tokens(
            self.offsets, self.ids, self.start + by, self.end + by, self.word, self.solid, self.case
        )


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """The texts of several token tables, one after the other."""
    if not parts:
        none, flags = np.zeros(0, np.int32), np.zeros(0, np.bool_)
        return Tokens(np.zeros(1, np.int64), none, none, none, flags, flags, np.zeros(0, np.uint8))
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(len(p) for p in parts)])
    offsets = [p.offsets[:-1] + s for p, s in zip(parts, shifts[:-1], strict=True)]
    return Tokens(
        np.concatenate([*offsets, shifts[-1:]]).astype(np.int64),
        *(
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("ids", "start", "end", "word", "solid", "case")
        ),
    )


class Tokenizer:
    """A fast tokenizer (`tokenizer.json`) with words, letter case and exact offsets."""

    def __init__(self, rust: tokenizers.Tokenizer, *, slab_chars: int = SLAB_CHARS) -> None:
        """Wrap a Rust tokenizer; its own truncation and padding are switched off."""
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        self._slab_chars = slab_chars
        self._overlap_chars = min(_OVERLAP_CHARS, slab_chars // 4)
        self.prefix_ids, self.suffix_ids = _special_ids(rust)
        self.pad_id = _pad_id(rust)

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """Load `tokenizer.json`; BundleError where it is absent or unreadable."""
        file = Path(path)
        if not file.is_file():
            raise BundleError(
                f"{file.parent} has no {file.name}: a fast tokenizer is needed; "
                "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes one"
            )
        try:
            return cls(tokenizers.Tokenizer.from_file(str(file)))
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            raise BundleError(f"{file} is not a tokenizer this version can read: {error}") from None

    @property
    def n_special(self) -> int:
        """Special tokens around each window."""
        return len(self.prefix_ids) + len(self.suffix_ids)

    def vocabulary(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return dict(self._rust.get_vocab())

    def encode(self, texts: Sequence[str]) -> Tokens:
        """Tokens of whole texts, each in one piece; for texts of any length use `stream`."""
        encodings = self._rust.encode_batch(list(texts), add_special_tokens=False)
        counts = np.fromiter((len(e) for e in encodings), np.int64, len(texts))
        n_tokens = int(counts.sum())
        ids = np.empty(n_tokens, np.int32)
        spans = np.empty((n_tokens, 2), np.int32)
        words = np.empty(n_tokens, np.int32)
        at = 0
        for encoding, count in zip(encodings, counts.tolist(), strict=True):
            if count:  # the lists of one text live only here
                ids[at : at + count] = encoding.ids
                spans[at : at + count] = encoding.offsets
                words[at : at + count] = [-1 if w is None else w for w in encoding.word_ids]
            at += count
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Tokens(offsets, ids, *find_words(texts, offsets, spans, words))

    def stream(self, text: str) -> Iterator[Tokens]:
        """Tokens of one text of any length, slab by slab; together they equal those of the whole text."""
        start = 0
        while start < len(text):
            stop = self._cut(text, start)
            if stop is not None:
                yield self.encode([text[start:stop]]).shift(start)
                start = stop
                continue
            for piece, following in self._stream_unspaced(text, start):
                yield piece
                start = following

    def _cut(self, text: str, start: int) -> int | None:
        """Where the slab that begins here ends: the text's end, or before a space; None without either."""
        if len(text) - start <= self._slab_chars:
            return len(text)
        low = start + self._slab_chars // 2
        points = chars.code_points(text[low - 1 : start + self._slab_chars + 1])
        blank = (chars.classes(points) & chars.BLANK) > 0
        begins = np.flatnonzero((points[1:-1] == ord(" ")) & ~blank[:-2])
        return low + int(begins[-1]) if len(begins) else None

    def _stream_unspaced(self, text: str, start: int) -> Iterator[tuple[Tokens, int]]:
        """Slabs of a stretch without spaces, each with where the next begins; ends at a plain cut."""
        size = self._slab_chars
        here = self.encode([text[start : start + size]]).shift(start)
        skip = start  # tokens before this place were given out with the slab before
        while True:
            stop = start + size
            tail = self._cut(text, skip) if skip > start else None
            if stop >= len(text) or (tail is not None and tail < stop - self._overlap_chars):
                end = min(stop, len(text)) if tail is None else tail
                # A blank token at the very end, its blanks trimmed off, starts where the text ends.
                yield _between(here, skip, end if end < len(text) else end + 1), end
                return
            next_start = self._back_off(here, stop)
            if next_start is None:  # one word fills the slab: take more of it
                size *= 2
                here = self.encode([text[start : start + size]]).shift(start)
                continue
            there = self.encode([text[next_start : next_start + self._slab_chars]]).shift(next_start)
            seam = self._seam(here, there, stop)
            if seam is None:
                size *= 2
                here = self.encode([text[start : start + size]]).shift(start)
                continue
            yield _between(here, skip, seam), seam
            here, start, skip, size = there, next_start, seam, self._slab_chars

    def _back_off(self, here: Tokens, stop: int) -> int | None:
        """A token boundary about one overlap before the slab's end."""
        index = int(np.searchsorted(here.start, stop - self._overlap_chars))
        if index in (0, len(here)) or here.start[index] <= here.start[0]:
            return None
        return int(here.start[index])

    def _seam(self, here: Tokens, there: Tokens, stop: int) -> int | None:
        """The first place, away from both slabs' edges, from which both give the same tokens for a while."""
        low = int(there.start[0]) + self._overlap_chars // 4 if len(there) else stop
        high = stop - self._overlap_chars // 4
        mine = {
            int(here.start[i]): i for i in np.flatnonzero((here.start >= low) & (here.start <= high))[::-1]
        }
        near = np.flatnonzero((there.start >= low) & (there.start <= high))
        # A word's start if there is one: a word cut in two would lose its letter case.
        for j in near[np.argsort(~there.word[near], kind="stable")]:
            i = mine.get(int(there.start[j]))
            if i is None or i == 0 or here.end[i - 1] > here.start[i] or there.end[j - 1] > there.start[j]:
                continue
            a, b = slice(i, i + _AGREE_TOKENS), slice(j, j + _AGREE_TOKENS)
            if np.array_equal(here.ids[a], there.ids[b]) and np.array_equal(here.start[a], there.start[b]):
                return int(there.start[j])
        return None


def _between(tokens: Tokens, low: int, high: int) -> Tokens:
    first, last = np.searchsorted(tokens.start, [low, high])
    return tokens.slice(int(first), int(last))


def _special_ids(rust: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids the post-processor puts before and after a single text."""
    encoding = rust.encode("a", add_special_tokens=True)
    inner = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    if not inner:
        inner = [len(encoding.ids) // 2]
        return tuple(encoding.ids[: inner[0]]), tuple(encoding.ids[inner[0] :])
    return tuple(encoding.ids[: inner[0]]), tuple(encoding.ids[inner[-1] + 1 :])


def _pad_id(rust: tokenizers.Tokenizer) -> int:
    for token in ("[PAD]", "<pad>", "<|padding|>", "<|endoftext|>"):
        found = rust.token_to_id(token)
        if found is not None:
            return int(found)
    return 0
