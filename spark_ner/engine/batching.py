"""Batches under a token budget, one length bucket each; pure numpy, no tensor in sight.

A window is padded to a bucket that depends on its own length alone, and a batch holds one bucket: no window
is computed at a padded length that its neighbours chose, and a text gives the same answer in any company.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# (up to this length, in steps of): fine where windows are short, since padding is a share of the length.
_STEPS = ((32, 2), (64, 4), (128, 8), (256, 16), (1 << 30, 32))


def bucket_lengths(n_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Padded length of each window, special tokens included; past 32 tokens at most 1/16 is padding."""
    padded = np.zeros_like(n_tokens)
    low = 0
    for high, step in _STEPS:
        here = (n_tokens > low) & (n_tokens <= high)
        padded[here] = -(-n_tokens[here] // step) * step
        low = high
    return padded


def token_budget_batches(buckets: NDArray[np.int64], budget: int) -> Iterator[NDArray[np.int64]]:
    """Windows batch by batch: one bucket each, at most `budget` padded tokens, at least one window."""
    order = np.argsort(buckets, kind="stable")
    edges = np.flatnonzero(np.diff(buckets[order], prepend=-1, append=-1))
    for low, high in pairwise(edges):
        rows = max(1, budget // int(buckets[order[low]]))
        for at in range(low, high, rows):
            yield order[at : min(at + rows, high)]
