"""Batches: the budget holds, one bucket each, every window once; few shapes and little padding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ner.engine.batching import bucket_lengths, token_budget_batches


def test_a_bucket_depends_on_the_length_alone() -> None:
    lengths = np.array([0, 1, 2, 3, 32, 33, 64, 65, 128, 129, 256, 257, 512])
    assert bucket_lengths(lengths).tolist() == [0, 2, 2, 4, 32, 36, 64, 72, 128, 144, 256, 288, 512]


def test_every_length_fits_its_bucket_and_buckets_are_few() -> None:
    lengths = np.arange(1, 513)
    buckets = bucket_lengths(lengths)
    assert (buckets >= lengths).all()
    assert (np.diff(buckets) >= 0).all()
    assert len(np.unique(buckets)) == 48  # bounded: 16 + 8 + 8 + 8 + 8
    past = lengths > 32
    assert ((buckets - lengths)[past] / buckets[past]).max() < 0.12


@settings(max_examples=50)
@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 2_000))
def test_each_window_is_in_one_batch_of_one_bucket_within_the_budget(lengths: list[int], budget: int) -> None:
    buckets = bucket_lengths(np.array(lengths, np.int64))
    batches = list(token_budget_batches(buckets, budget))
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        (bucket,) = set(buckets[batch].tolist())
        assert len(batch) == 1 or len(batch) * bucket <= budget
    for before, after in itertools.pairwise(batches):  # no batch could have taken one window more
        same = buckets[before[0]] == buckets[after[0]]
        assert not same or (len(before) + 1) * buckets[before[0]] > budget


def test_neighbours_of_one_bucket_stay_in_order() -> None:
    batches = [b.tolist() for b in token_budget_batches(np.array([8, 4, 8, 4, 8]), 16)]
    assert batches == [[1, 3], [0, 2], [4]]


@pytest.mark.parametrize("budget", [1, 7])
def test_a_window_longer_than_the_budget_is_a_batch_of_its_own(budget: int) -> None:
    assert [b.tolist() for b in token_budget_batches(np.array([8, 8]), budget)] == [[0], [1]]


def test_no_windows_no_batches() -> None:
    assert list(token_budget_batches(np.zeros(0, np.int64), 1_024)) == []
