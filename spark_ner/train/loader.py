"""The batches of one process, read from the shards ahead of the step that needs them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader, Dataset

from spark_ner.train.settings import LoopConfig
from spark_ner.train.shards import Rows, Shards
from spark_ner.train.texts import Batch


class Loader:
    """Which batches of an epoch are whose, and the time that was spent waiting for them.

    A step takes `size * accumulation` batches of the epoch's order, so it is the same step on any number of
    processes with the same product. Where the epoch ends in mid-step the processes without a batch get an
    empty one: all of them take the same number of steps.
    """

    def __init__(self, shards: Shards, *, config: LoopConfig, rank: int = 0, size: int = 1) -> None:
        """The part of process `rank` of `size`."""
        self._shards = shards
        self._seed, self._batch_tokens = config.seed, config.batch_tokens
        self._accumulation, self._rank, self._size = config.accumulation, rank, size
        self._processes = config.loader_processes
        self.waited_s = 0.0

    def n_steps(self, epoch: int) -> int:
        """Steps of an epoch, the same for every process."""
        n_batches = sum(1 for _ in self._order(epoch))
        return -(-n_batches // (self._size * self._accumulation))

    def steps(self, epoch: int, *, start: int = 0) -> Iterator[list[Batch]]:
        """This process's batches of each step from `start` on, `accumulation` of them."""
        batches = self._read(self._own(epoch, start))
        while True:
            began = time.perf_counter()
            step = list(islice(batches, self._accumulation))
            self.waited_s += time.perf_counter() - began
            if not step:
                return
            yield step

    def _order(self, epoch: int) -> Iterator[Rows]:
        return self._shards.epoch(epoch, seed=self._seed, batch_tokens=self._batch_tokens)

    def _own(self, epoch: int, start: int) -> Iterator[Rows | None]:
        order = self._order(epoch)
        width = self._size * self._accumulation
        for step in range(2**62):
            batches = list(islice(order, width))
            if not batches:
                return
            if step >= start:
                for at in range(self._rank, width, self._size):
                    yield batches[at] if at < len(batches) else None

    def _read(self, own: Iterator[Rows | None]) -> Iterator[Batch]:
        source = _Source(self._shards.directory)
        if not self._processes:
            return map(source.__getitem__, own)
        loader = DataLoader(
            source,
            sampler=own,
            batch_size=None,
            num_workers=self._processes,
            collate_fn=_same,  # type: ignore[arg-type]
            prefetch_factor=4,
        )
        return iter(loader)


class _Source(Dataset[Batch]):
    """Batches by the places of their texts; opens the shards where it is used."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shards: Shards | None = None

    def __getitem__(self, rows: Rows | None) -> Batch:
        if self._shards is None:
            self._shards = Shards(self._directory)
        return empty(self._shards.about.pad_id) if rows is None else self._shards.read(rows)


def empty(pad_id: int) -> Batch:
    """A batch without a target: its loss and its gradients are 0."""
    one = np.ones((1, 1), np.int64)
    return Batch((), one * pad_id, one, one * 0, one * 0)


def _same(batch: Batch) -> Batch:
    return batch
