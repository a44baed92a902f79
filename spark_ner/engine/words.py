"""Words: what the pre-tokenizer and the original text say, not what blanks say.

A token starts a word where the pre-tokenizer cut, where a blank lies before it, at punctuation, and in
scripts written without blanks. Training labels and decoding both use this one definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine import text as chars

CASE_UNKNOWN, CASE_DIGIT, CASE_LOWER, CASE_TITLE, CASE_UPPER, CASE_MIXED = range(6)

Flags = NDArray[np.bool_]
Places = NDArray[np.int64]  # of characters, in all texts together
Columns = tuple[NDArray[np.int32], NDArray[np.int32], Flags, Flags, NDArray[np.uint8]]


@dataclass(frozen=True)
class _Characters:
    """The characters of all texts, a line feed between texts so that none meets the next one's first."""

    points: NDArray[np.uint32]
    kinds: NDArray[np.uint16]

    def are(self, bits: int) -> Flags:
        """Which characters are of one of these classes."""
        return (self.kinds & bits) > 0


def find_words(
    texts: Sequence[str], offsets: NDArray[np.int64], spans: NDArray[np.int32], word_ids: NDArray[np.int32]
) -> Columns:
    """Start, end, word, solid and case of each token: see `tokenizer.Tokens`; for all texts at once.

    Args:
        texts: the original texts.
        offsets: (n_texts + 1,) tokens of text `i` are rows `offsets[i]:offsets[i + 1]`.
        spans: (n_tokens, 2) code points of each token in its text, as the tokenizer gives them.
        word_ids: (n_tokens,) which piece of the pre-tokenizer a token belongs to.
    """
    lengths = np.fromiter((len(t) for t in texts), np.int64, len(texts))
    bases = np.cumsum(lengths + 1) - lengths - 1
    points = chars.code_points("\n".join(texts))
    text = _Characters(points, chars.classes(points))
    counts = np.diff(offsets)
    base = np.repeat(bases, counts)
    first = np.zeros(len(word_ids), bool)
    first[offsets[:-1][counts > 0]] = True
    places = spans.astype(np.int64) + base[:, None]
    start, end = _trim(text, places[:, 0], places[:, 1])
    solid = end > start
    rows = np.flatnonzero(solid)  # fillers divide nothing, so that they do not divide twice
    word = np.zeros(len(start), bool)
    if len(rows):
        new_text = np.diff(np.cumsum(first)[rows], prepend=-1) != 0
        new_piece = np.diff(word_ids[rows], prepend=-2) != 0
        word[rows] = new_text | _word_starts(text, start[rows], end[rows], new_piece)
    end = _cover_marks(text, (start, end), np.repeat(bases + lengths, counts), solid)
    case = _letter_case(text, (start, end), word, solid)
    return (start - base).astype(np.int32), (end - base).astype(np.int32), word, solid, case


def _trim(text: _Characters, start: Places, end: Places) -> tuple[Places, Places]:
    """Move both ends of each span over blanks; a span of blanks alone becomes empty."""
    blank = np.append(text.are(chars.BLANK), False)
    start, end = start.copy(), end.copy()
    while (loose := (start < end) & blank[start]).any():
        start[loose] += 1
    while (loose := (start < end) & blank[end - 1]).any():
        end[loose] -= 1
    return start, end


def _word_starts(text: _Characters, start: Places, end: Places, new_piece: Flags) -> Flags:
    """Which solid tokens start a word, the first of each text aside."""
    before = np.append(0, np.maximum.accumulate(end)[:-1])
    blanks = np.append(0, np.cumsum(text.are(chars.BLANK)))
    gap = blanks[np.maximum(start, before)] > blanks[before]
    left, right = np.append(0, end[:-1] - 1), start
    mark = text.are(chars.MARK)
    letter = np.append(False, text.are(chars.MARK | chars.LETTER | chars.DIGIT))  # [i + 1] is of place i
    # Byte-level pre-tokenizers cut at combining marks, readers do not: a mark belongs to what is before it.
    new_piece = new_piece & ~(mark[left] & letter[left] & letter[right + 1])
    divides = (new_piece | _divides(text, left, right)) & ~mark[right]
    # A piece of a character that an earlier token already covers can start no word: spans stay disjoint.
    starts: Flags = (start >= before) & (gap | divides)
    return starts


def _divides(text: _Characters, left: Places, right: Places) -> Flags:
    """Whether the text itself divides two neighbouring tokens, from the characters at either side."""
    alone = text.are(chars.PUNCTUATION | chars.UNSPACED)
    alnum = text.are(chars.LETTER | chars.DIGIT | chars.MARK) & ~text.are(chars.UNSPACED)
    inner = np.isin(text.points, np.fromiter(chars.CONNECTORS, np.uint32))  # between two letters or digits
    inner[1:-1] &= alnum[:-2] & alnum[2:]
    inner[:1] = inner[-1:] = False
    soft = (inner[left] & alnum[right]) | (alnum[left] & inner[right])
    divides: Flags = (alone[left] | alone[right]) & ~soft
    return divides


def _cover_marks(text: _Characters, span: tuple[Places, Places], limit: Places, solid: Flags) -> Places:
    """Let a span end after the combining marks of its last letter (normalizers drop them), not in a token."""
    start, end, limit = span[0], span[1].copy(), limit.copy()
    rows = np.flatnonzero(solid)
    limit[rows[:-1]] = np.minimum(limit[rows[:-1]], np.maximum(start[rows[1:]], end[rows[:-1]]))
    mark = np.append(text.are(chars.MARK), False)
    while (unfinished := solid & (end < limit) & mark[end]).any():
        end[unfinished] += 1
    return end


def _letter_case(
    text: _Characters, span: tuple[Places, Places], word: Flags, solid: Flags
) -> NDArray[np.uint8]:
    """Letter case of each token's word: unknown, digit, lower, Title, UPPER or mixed."""
    start, end = span
    case = np.zeros(len(start), np.uint8)
    rows = np.flatnonzero(word)
    if not len(rows):
        return case
    high = np.maximum.reduceat(np.where(solid, end, 0), rows)
    low = start[rows]
    upper, lower, digit = (
        n[high] - n[low]
        for n in (np.append(0, np.cumsum(text.are(bit))) for bit in (chars.UPPER, chars.LOWER, chars.DIGIT))
    )
    title = (upper == 1) & text.are(chars.UPPER)[low]
    of_word = np.select(
        [title, upper + lower == 0, lower == 0, upper == 0],
        [CASE_TITLE, np.where(digit > 0, CASE_DIGIT, CASE_UNKNOWN), CASE_UPPER, CASE_LOWER],
        CASE_MIXED,
    ).astype(np.uint8)
    index = np.cumsum(word) - 1
    inside = (index >= 0) & solid
    case[inside] = of_word[index[inside]]
    return case
