"""What computes the scores of a batch: one small Protocol, one module a library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Windows of one bucket, padded to it: (n_windows, n_tokens) arrays, special tokens included."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]  # 1 on real tokens
    token_types: NDArray[np.int64]  # letter case of each token's word where the model reads it, else 0


class Runtime(Protocol):
    """Computes tag scores; a row's scores depend on that row alone."""

    @property
    def name(self) -> str:
        """Library and precision, for the runs table."""
        ...

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        """Logits of every token, (n_windows, n_tokens, n_tags)."""
        ...
