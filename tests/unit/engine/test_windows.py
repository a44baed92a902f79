"""Windows: every word owned once, by the window with most context; laid slab-wise or whole alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_ner.engine.windows import Layout, Windows, lay, merge, whole

Row = tuple[int, int, int, int]


def rows(windows: Windows) -> list[Row]:
    columns = (windows.start, windows.end, windows.own_start, windows.own_end)
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]  # type: ignore[misc]


@st.composite
def documents(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    """(word flags of a document's tokens, window size, overlap): words of 1 to 14 tokens."""
    lengths = draw(st.lists(st.one_of(st.integers(1, 3), st.integers(1, 14)), max_size=40))
    fillers = draw(st.integers(0, 2))
    size = draw(st.integers(1, 12))
    overlap = draw(st.integers(0, size - 1))
    flags = [False] * fillers + [i == 0 for n in lengths for i in range(n)]
    return np.array(flags, bool), size, overlap


@settings(max_examples=60)
@given(documents())
@example((np.ones(8, bool), 8, 3))
@example((np.array([True] + [False] * 30), 4, 2))
def test_every_word_is_owned_once_by_a_window_that_holds_its_start(case: tuple[np.ndarray, int, int]) -> None:
    word, size, overlap = case
    found = rows(lay(word, size=size, overlap=overlap, final=True).windows)
    owners = np.zeros(len(word), int)
    for start, end, own_start, own_end in found:
        assert 0 < end - start <= size
        assert start == 0 or word[start]  # no window starts inside a word
        owners[own_start:own_end] += 1
        owned = np.flatnonzero(word[own_start:own_end]) + own_start
        assert not len(owned) or start <= owned[0] <= owned[-1] < end
    assert (owners == 1).all()


@settings(max_examples=60)
@given(documents())
def test_a_window_ends_at_a_word_unless_one_word_fills_it(case: tuple[np.ndarray, int, int]) -> None:
    word, size, overlap = case
    for start, end, _, _ in rows(lay(word, size=size, overlap=overlap, final=True).windows):
        if end < len(word) and not word[end]:
            assert not word[start + 1 : end].any()
            assert end - start == size


@settings(max_examples=60)
@given(documents())
def test_the_owner_has_most_context(case: tuple[np.ndarray, int, int]) -> None:
    word, size, overlap = case
    found = rows(lay(word, size=size, overlap=overlap, final=True).windows)
    for start, end, own_start, own_end in found:
        for at in (np.flatnonzero(word[own_start:own_end]) + own_start).tolist():
            mine = context(at, start, end, len(word))
            best = max(context(at, s, e, len(word)) for s, e, _, _ in found if s <= at < e)
            assert mine == best, (at, (start, end))


def context(at: int, start: int, end: int, n_tokens: int) -> int:
    """Tokens between a token and the nearer edge of a window; a document's own edge takes no context away."""
    left = n_tokens if start == 0 else at - start
    right = n_tokens if end == n_tokens else end - at
    return min(left, right)


@settings(max_examples=60)
@example((np.array([True, *[False] * 9, True, True]), 4, 1), [7])
@given(documents(), st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_laid_slab_by_slab_equals_laid_whole(case: tuple[np.ndarray, int, int], steps: list[int]) -> None:
    word, size, overlap = case
    expected = rows(lay(word, size=size, overlap=overlap, final=True).windows)
    edges = sorted({0, len(word), *(int(cut) for cut in np.cumsum(steps) if cut < len(word))})
    found: list[Row] = []
    held_from, owned = 0, 0
    for stop in edges[1:]:
        final = stop == len(word)
        layout: Layout = lay(word[held_from:stop], size=size, overlap=overlap, final=final, owned=owned)
        found += [tuple(x + held_from for x in row) for row in rows(layout.windows)]  # type: ignore[misc]
        held_from, owned = held_from + layout.rest, layout.owned
    assert found == expected


def test_known_windows() -> None:
    """Ten words of one token, windows of 6 that share 3: the border is the middle of what two share."""
    windows = lay(np.ones(10, bool), size=6, overlap=3, final=True).windows
    assert rows(windows) == [(0, 6, 0, 5), (3, 9, 5, 8), (6, 10, 8, 10)]


def test_neighbours_share_the_overlap_at_least() -> None:
    word = np.array([True, False] * 6)
    windows = lay(word, size=7, overlap=3, final=True).windows
    assert rows(windows) == [(0, 6, 0, 4), (2, 8, 4, 6), (4, 10, 6, 8), (6, 12, 8, 12)]


def test_a_word_longer_than_the_window_is_read_by_its_first_tokens() -> None:
    word = np.array([True, *([False] * 9), True])
    windows = lay(word, size=4, overlap=1, final=True).windows
    assert rows(windows) == [(0, 4, 0, 10), (10, 11, 10, 11)]


def test_a_document_that_fits_is_one_window() -> None:
    assert rows(lay(np.ones(6, bool), size=6, overlap=2, final=True).windows) == [(0, 6, 0, 6)]
    assert rows(whole(np.array([0, 2, 2, 5]))) == [(0, 2, 0, 2), (2, 2, 2, 2), (2, 5, 2, 5)]


def test_merge_keeps_order() -> None:
    one, two = whole(np.array([0, 2])), whole(np.array([2, 5]))
    assert rows(merge([one, two])) == [(0, 2, 0, 2), (2, 5, 2, 5)]
    assert merge([one, two]).n_tokens.tolist() == [2, 3]


@pytest.mark.parametrize("final", [True, False])
def test_an_empty_document_has_no_window(final: bool) -> None:
    layout = lay(np.zeros(0, bool), size=4, overlap=1, final=final)
    assert rows(layout.windows) == []
    assert (layout.rest, layout.owned) == (0, 0)
