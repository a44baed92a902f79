"""Documents to tokens: slabs of text into the Rust tokenizer, numpy columns out, offsets of the original text.

Words are what the pre-tokenizer and the original text say: a token starts a word where the pre-tokenizer cut,
where a blank lies before it, at punctuation, and in scripts written without blanks. Training labels and decoding
both use this one definition.

A long document is cut into slabs before it is tokenized (one call on 10 MB of text takes over 1 GB). A cut lies
before a run of blanks that begins with a plain space, where every pre-tokenizer cuts anyway (SentencePiece's cuts
nowhere else); in text without them two slabs overlap and are joined where both agree on several tokens in a row.
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
from spark_ner.errors import BundleError

TokenFeature = Literal["none", "letter_case"]

SLAB_CHARS = 65_536
_OVERLAP_CHARS = 4_096  # shared by neighbouring slabs of a text without blanks
_AGREE_TOKENS = 4  # tokens in a row on which two slabs must agree to be joined

CASE_UNKNOWN, CASE_DIGIT, CASE_LOWER, CASE_TITLE, CASE_UPPER, CASE_MIXED = range(6)


@dataclass(frozen=True)
class Tokens:
    """Tokens of several texts, one text after the other; text `i` owns rows `offsets[i]:offsets[i + 1]`.

    `start` and `end` are code points of the original text, blanks at either side trimmed off. `word` is true on
    the first token of each word; a token made of blanks or of nothing (`solid` false) belongs to no word.
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
        return Tokens(self.offsets, self.ids, self.start + by, self.end + by, self.word, self.solid, self.case)


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """The texts of several token tables, one after the other."""
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
        except Exception as error:  # the library raises bare Exception
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
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return _annotate_words(texts, offsets, ids, spans, words)

    def stream(self, text: str) -> Iterator[Tokens]:
        """Tokens of one text of any length, slab by slab; together they equal those of the whole text."""
        start = 0
        while start < len(text):
            stop = self._cut(text, start)
            if stop is not None:
                yield self.encode([text[start:stop]]).shift(start)
                start = stop
                continue
            for piece, start in self._stream_unspaced(text, start):
                yield piece

    def _cut(self, text: str, start: int) -> int | None:
        """Where the slab that begins here ends: the text's end or before a space; None where there is neither."""
        if len(text) - start <= self._slab_chars:
            return len(text)
        low = start + self._slab_chars // 2
        points = chars.code_points(text[low - 1 : start + self._slab_chars + 1])
        blank = (chars.classes(points) & chars.BLANK) > 0
        begins = np.flatnonzero((points[1:-1] == ord(" ")) & ~blank[:-2])
        return low + int(begins[-1]) if len(begins) else None

    def _stream_unspaced(self, text: str, start: int) -> Iterator[tuple[Tokens, int]]:
        """Slabs of a stretch without spaces, each with the place where the next begins; ends at a plain cut."""
        size = self._slab_chars
        here = self.encode([text[start : start + size]]).shift(start)
        skip = start  # tokens before this place were given out with the slab before
        while True:
            stop = start + size
            tail = self._cut(text, skip) if skip > start else None
            if stop >= len(text) or (tail is not None and tail < stop - self._overlap_chars):
                end = min(stop, len(text)) if tail is None else tail
                yield _between(here, skip, end), end
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
        low = stop - self._overlap_chars + self._overlap_chars // 4
        high = stop - self._overlap_chars // 4
        mine = {int(here.start[i]): i for i in np.flatnonzero((here.start >= low) & (here.start <= high))[::-1]}
        for j in np.flatnonzero((there.start >= low) & (there.start <= high)):
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


def _annotate_words(
    texts: Sequence[str],
    offsets: NDArray[np.int64],
    ids: NDArray[np.int32],
    spans: NDArray[np.int32],
    words: NDArray[np.int32],
) -> Tokens:
    """Trim blanks off the offsets, find the words and their letter case, for all texts at once."""
    lengths = np.fromiter((len(t) for t in texts), np.int64, len(texts))
    bases = np.concatenate([[0], np.cumsum(lengths)])
    points = chars.code_points("".join(texts))
    kinds = chars.classes(points)
    base = np.repeat(bases[:-1], np.diff(offsets))
    first = np.zeros(len(ids), bool)
    first[offsets[:-1][np.diff(offsets) > 0]] = True
    start, end = _trim(kinds, spans[:, 0] + base, spans[:, 1] + base)
    solid = end > start
    word = _word_starts(kinds, points, start, end, solid, words, first)
    end = _cover_marks(kinds, start, end, np.repeat(bases[1:], np.diff(offsets)), solid)
    case = _letter_case(kinds, start, end, word, solid)
    return Tokens(
        offsets=offsets.astype(np.int64),
        ids=ids,
        start=(start - base).astype(np.int32),
        end=(end - base).astype(np.int32),
        word=word,
        solid=solid,
        case=case,
    )


def _trim(
    kinds: NDArray[np.uint16], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Move both ends of each span over blanks; a span of blanks alone becomes empty."""
    start, end = start.copy(), end.copy()
    padded = np.append(kinds, 0) & chars.BLANK
    while (loose := (start < end) & (padded[start] > 0)).any():
        start[loose] += 1
    while (loose := (start < end) & (padded[end - 1] > 0)).any():
        end[loose] -= 1
    return start, end


def _word_starts(
    kinds: NDArray[np.uint16],
    points: NDArray[np.uint32],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    solid: NDArray[np.bool_],
    words: NDArray[np.int32],
    first: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """True on tokens that start a word; computed on solid tokens alone, so that fillers divide nothing twice."""
    rows = np.flatnonzero(solid)
    starts = np.zeros(len(start), bool)
    if not len(rows):
        return starts
    text_of = np.cumsum(first)[rows]
    s, e, w = start[rows], end[rows], words[rows]
    new_text = np.append(True, text_of[1:] != text_of[:-1])
    before = np.append(0, np.maximum.accumulate(e)[:-1])
    other_word = np.append(True, w[1:] != w[:-1])
    blanks = np.append(0, np.cumsum((kinds & chars.BLANK) > 0))
    gap = np.append(True, blanks[np.maximum(s[1:], before[1:])] > blanks[before[1:]])
    left, right = np.append(0, e[:-1] - 1), s
    divides = _divides(kinds, points, left, right)
    # A piece of a character that an earlier token already covers can start no word: spans stay disjoint.
    starts[rows] = new_text | ((s >= before) & (other_word | gap | divides))
    return starts


def _divides(
    kinds: NDArray[np.uint16], points: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the text itself divides two neighbouring tokens, from the characters at either side."""
    alone = chars.PUNCTUATION | chars.UNSPACED
    divides = ((kinds[left] | kinds[right]) & alone) > 0
    connector = np.isin(points, np.fromiter(chars.CONNECTORS, np.uint32))
    alnum = ((kinds & (chars.LETTER | chars.DIGIT | chars.MARK)) > 0) & ((kinds & chars.UNSPACED) == 0)
    inner = np.zeros(len(points) + 2, bool)  # a connector between two letters or digits
    inner[1:-1] = connector
    inner[2:-2] &= alnum[:-2] & alnum[2:]
    inner[1] = inner[-2] = False
    inner = inner[1:-1]
    soft = (inner[left] & alnum[right]) | (alnum[left] & inner[right])
    return divides & ~soft


def _cover_marks(
    kinds: NDArray[np.uint16],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    limit: NDArray[np.int64],
    solid: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Let a span end after the combining marks of its last character (normalizers drop them), never past a token."""
    end, limit = end.copy(), limit.copy()
    rows = np.flatnonzero(solid)
    limit[rows[:-1]] = np.minimum(limit[rows[:-1]], np.maximum(start[rows[1:]], end[rows[:-1]]))
    padded = np.append(kinds, 0) & chars.MARK
    while (open_ := solid & (end < limit) & (padded[end] > 0)).any():
        end[open_] += 1
    return end


def _letter_case(
    kinds: NDArray[np.uint16],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    word: NDArray[np.bool_],
    solid: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Letter case of each token's word: unknown, digit, lower, Title, UPPER or mixed."""
    case = np.zeros(len(start), np.uint8)
    rows = np.flatnonzero(word)
    if not len(rows):
        return case
    high = np.maximum.reduceat(np.where(solid, end, 0), rows)
    low = start[rows]
    n_upper, n_lower, n_digit = (
        np.append(0, np.cumsum((kinds & bit) > 0)) for bit in (chars.UPPER, chars.LOWER, chars.DIGIT)
    )
    upper, lower, digit = (n[high] - n[low] for n in (n_upper, n_lower, n_digit))
    title = (upper == 1) & ((kinds[low] & chars.UPPER) > 0)
    of_word = np.select(
        [title, upper + lower == 0, lower == 0, upper == 0],
        [CASE_TITLE, np.where(digit > 0, CASE_DIGIT, CASE_UNKNOWN), CASE_UPPER, CASE_LOWER],
        CASE_MIXED,
    ).astype(np.uint8)
    index = np.cumsum(word) - 1
    inside = (index >= 0) & solid
    case[inside] = of_word[index[inside]]
    return case
