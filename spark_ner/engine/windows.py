"""Windows over a document's tokens: model-sized, overlapping, never starting inside a word.

Each token is owned by exactly one window, the one where it has most context: two neighbours share their
overlap at the first word after its middle. Because every word gets its tag from one window only, an entity
that crosses a window's edge, or is longer than the overlap, comes out once and whole. Layout depends on the
document alone, and reads it from left to right: one that arrives slab by slab gets the windows of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Windows:
    """Rows `start:end` of a token table go to the model; it tags the words in rows `own_start:own_end`."""

    start: NDArray[np.int64]  # (n_windows,)
    end: NDArray[np.int64]
    own_start: NDArray[np.int64]
    own_end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def n_tokens(self) -> NDArray[np.int64]:
        """Tokens of each window without the special ones."""
        return self.end - self.start


def whole(offsets: NDArray[np.int64]) -> Windows:
    """One window a text, for texts that fit."""
    return Windows(offsets[:-1], offsets[1:], offsets[:-1], offsets[1:])


def merge(parts: list[Windows]) -> Windows:
    """Windows of one token table, gathered."""
    names = ("start", "end", "own_start", "own_end")
    return Windows(*(np.concatenate([getattr(p, n) for p in parts]).astype(np.int64) for n in names))


@dataclass(frozen=True)
class Layout:
    """Windows laid so far over a growing document, and where to go on: token `rest`, owned from `owned`."""

    windows: Windows
    rest: int
    owned: int


def lay(word: NDArray[np.bool_], *, size: int, overlap: int, final: bool, owned: int = 0) -> Layout:
    """Lay windows over the tokens of one document, or over as much of it as is there.

    Args:
        word: (n_tokens,) true on the first token of each word.
        size: most tokens in a window.
        overlap: tokens two neighbours share, at least, where words allow it.
        final: whether the document ends here; if not, only windows that no later token can change are laid.
        owned: tokens before this one were owned by windows laid earlier.
    """
    starts, n_tokens = np.flatnonzero(word), len(word)
    rows: list[tuple[int, int, int, int]] = []
    begin = 0
    while True:
        if n_tokens - begin <= size:
            if final and n_tokens > owned:
                rows.append((begin, n_tokens, owned, n_tokens))
                begin = owned = n_tokens
            break
        end = _last(starts, begin + 1, begin + size) or begin + size
        if not final and _first(starts, end) is None:
            break  # the word at the window's end is longer than what is here
        following = _last(starts, begin + 1, end - overlap) or _first(starts, begin + 1)
        if following is None:  # one word up to the document's end: its first tokens stand for it
            rows.append((begin, end, owned, n_tokens))
            begin = owned = n_tokens
            break
        border = _first(starts, max(following, (following + end + 1) // 2))
        border = n_tokens if border is None else border
        if border > owned:
            rows.append((begin, end, owned, border))
            owned = border
        begin = following
    table = np.array(rows, np.int64).reshape(len(rows), 4)
    return Layout(Windows(*table.T), rest=begin, owned=owned - begin)


def _first(starts: NDArray[np.int64], low: int) -> int | None:
    index = int(np.searchsorted(starts, low))
    return int(starts[index]) if index < len(starts) else None


def _last(starts: NDArray[np.int64], low: int, high: int) -> int | None:
    index = int(np.searchsorted(starts, high, side="right")) - 1
    return int(starts[index]) if index >= 0 and starts[index] >= low else None
