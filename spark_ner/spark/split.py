"""How one micro-batch is dealt to tasks: by length, so that tasks end together and the longest start first.

A pass over the lengths says how many tasks there will be. Then, in the stage that reads, each row is given to
a task: a document that would fill a quarter of one gets its own, and those start first; the others go,
longest first, to the task that has least. A row's task is a key whose hash Spark sends to the partition
wanted.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, the name everybody knows
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from spark_ner.sinks.runs import InputFile
from spark_ner.spark.source import BLOCK, BYTES, MODIFIED, ROW, SOURCE, column

pc: Any = pyarrow.compute  # its stubs do not know arrays and scalars together

SLOT = "_ner_slot"
MAX_TASKS = 20_000
_ALONE_SHARE = 0.25  # of a task's characters: from here on a document is a task of its own
_MURMUR_SEED = 42


@dataclass(frozen=True, kw_only=True)
class Group:
    """Documents of one file, one reading partition and one order of length (binary digits)."""

    file: InputFile | None
    partition: int
    bits: int
    documents: int
    characters: int


@dataclass(frozen=True)
class Measured:
    """What a micro-batch holds, before the model sees it."""

    groups: tuple[Group, ...]

    @property
    def documents(self) -> int:
        """Rows, null ones included."""
        return sum(g.documents for g in self.groups)

    @property
    def characters(self) -> int:
        """Characters of all documents."""
        return sum(g.characters for g in self.groups)

    @property
    def files(self) -> tuple[InputFile, ...] | None:
        """Files that hold a document; None where the input is no files."""
        found = {g.file.path: g.file for g in self.groups if g.file is not None}
        return tuple(found[path] for path in sorted(found)) if found else None

    @property
    def digest(self) -> str:
        """Names the input of a micro-batch: its files, or its size where it has none.

        A file rewritten in place does not change it: that is noticed apart.
        """
        files = self.files
        named: list[object] = [f.path for f in files] if files else [self.documents, self.characters]
        return hashlib.sha256(repr(named).encode()).hexdigest()[:16]

    @property
    def contents(self) -> str:
        """Names the input with the state of its files: equal input gives an equal name at any time."""
        named = [self.files, self.documents, self.characters]
        return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Split:
    """The deal: the first `n_alone` tasks hold one long document each, the others share the rest evenly."""

    n_tasks: int
    n_alone: int = 0
    alone_bits: int = 64  # documents of so many binary digits of length, or more, are alone
    first_alone: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # by partition and bits


def measure(frame: DataFrame, text_col: str) -> Measured:
    """One pass without Python workers: rows and characters by file, reading partition and order of length."""
    characters = F.coalesce(F.length(column(text_col)), F.lit(0)).cast("long")
    rows = (
        frame.groupBy(
            F.col(SOURCE),
            F.col(BYTES),
            F.col(MODIFIED),
            F.spark_partition_id().alias("partition"),
            F.length(F.bin(characters)).alias("bits"),
        )
        .agg(F.count(F.lit(1)).alias("documents"), F.sum(characters).alias("characters"))
        .collect()
    )
    return Measured(
        tuple(
            Group(
                file=None if r[BYTES] is None else InputFile(r[SOURCE], r[BYTES], r[MODIFIED]),
                partition=r["partition"],
                bits=r["bits"],
                documents=r["documents"],
                characters=r["characters"],
            )
            for r in rows
        )
    )


def split(measured: Measured, *, slots: int, task_characters: float) -> Split:
    """How many tasks, and which documents are alone.

    Args:
        measured: what the pass over the lengths found.
        slots: tasks that can run at once; there are at least so many tasks, unless there are fewer documents.
        task_characters: what one task should read.
    """
    # With little to do, a task's share is what keeps every slot busy, not the target.
    share = min(task_characters, max(1.0, measured.characters / slots))
    # The whole order of length is alone if its shortest possible document is: 2 ** (bits - 1) characters.
    alone_bits = max(1, math.ceil(math.log2(max(2.0, share * _ALONE_SHARE))) + 1)
    alone = sorted((g for g in measured.groups if g.bits >= alone_bits), key=lambda g: (-g.bits, g.partition))
    if sum(g.documents for g in alone) > MAX_TASKS // 2:
        alone, alone_bits = [], 64
    first_alone: dict[int, dict[int, int]] = {}
    n_alone = 0
    for (bits, partition), documents in _by_bits_and_partition(alone).items():
        first_alone.setdefault(partition, {})[bits] = n_alone
        n_alone += documents
    rest = measured.documents - n_alone
    characters = measured.characters - sum(g.characters for g in alone)
    n_shared = min(rest, max(slots, math.ceil(characters / task_characters)), MAX_TASKS // 2)
    return Split(
        n_tasks=max(1, n_alone + n_shared), n_alone=n_alone, alone_bits=alone_bits, first_alone=first_alone
    )


def dealt(frame: DataFrame, chosen: Split, *, text_col: str, id_col: str) -> DataFrame:
    """The rows, each in the partition that `chosen` deals it to; adds the document's id where it has none.

    Runs in the stage that reads, where the order of rows in a file is still known.
    """
    inner = {SLOT, BLOCK, ROW, BYTES, MODIFIED}
    # Size and time were for `measure`; they need not travel.
    slim = frame.drop(BYTES, MODIFIED)
    fields = [f for f in slim.schema.fields if f.name not in inner]
    if id_col not in slim.columns:
        fields.insert(0, StructField(id_col, StringType()))
    dealer = Dealer(
        tuple(f.name for f in fields), text_col, id_col, chosen, slot_keys(chosen.n_tasks).tolist()
    )
    schema = StructType([*fields, StructField(SLOT, IntegerType())])
    return slim.mapInArrow(dealer, schema).repartition(chosen.n_tasks, F.col(SLOT)).drop(SLOT)


@dataclass(frozen=True)
class Dealer:
    """What the reading stage runs on each partition; crosses to the workers."""

    columns: tuple[str, ...]
    text_col: str
    id_col: str
    split: Split
    keys: list[int] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch with an id and a slot key a row."""
        from pyspark import TaskContext

        task = TaskContext.get()
        slots = SlotDealer(self.split, task.partitionId() if task else 0)
        positions = Positions()
        keys = np.asarray(self.keys, np.int32)
        for batch in batches:
            columns = {name: batch.column(name) for name in batch.schema.names}
            if self.id_col not in columns:
                columns[self.id_col] = positions.name(batch)
            slot = keys[slots.deal(text_lengths(columns[self.text_col]))]
            yield pa.RecordBatch.from_arrays(
                [*(columns[name] for name in self.columns), pa.array(slot, pa.int32())],
                names=[*self.columns, SLOT],
            )


class SlotDealer:
    """Gives each row of one reading partition a slot."""

    def __init__(self, chosen: Split, partition: int) -> None:
        self._split = chosen
        self._next_alone = dict(chosen.first_alone.get(partition, {}))
        shared = list(range(chosen.n_alone, chosen.n_tasks)) or [0]
        # Partitions with a few rows each must not all begin with the same slot.
        turn = partition * 7 % len(shared)
        self._loads = [(0, order, slot) for order, slot in enumerate(shared[turn:] + shared[:turn])]

    def deal(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """A slot for each row of these lengths in characters: (n,)."""
        bits = np.frexp(lengths.astype(np.float64))[1]
        slots = np.empty(len(lengths), np.int64)
        for row in np.argsort(-lengths, kind="stable").tolist():
            digits = int(bits[row])
            if digits >= self._split.alone_bits and digits in self._next_alone:
                slots[row] = self._next_alone[digits] % self._split.n_tasks
                self._next_alone[digits] += 1
                continue
            load, order, slot = self._loads[0]
            # A row costs something even if it is empty, or all empty rows would go to one slot.
            heapq.heapreplace(self._loads, (load + int(lengths[row]) + 8, order, slot))
            slots[row] = slot
        return slots


class Positions:
    """Ids from where a document is: `<file>`, `<file>#<row>` or `<file>#<block start>:<row in the block>`.

    Blocks are the same in every run (see `source.READ_CONF`), and a partition reads each from its start.
    """

    def __init__(self) -> None:
        self._at: tuple[object, object] | None = None
        self._row = 0

    def name(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """The id of each row."""
        source = batch.column(SOURCE)
        if ROW in batch.schema.names:
            return _joined(source, batch.column(ROW))
        if BLOCK not in batch.schema.names:
            return source
        block = batch.column(BLOCK)
        rows = self._count(source, block)
        return _joined(
            source, pc.binary_join_element_wise(block.cast(pa.string()), rows.cast(pa.string()), ":")
        )

    def _count(self, source: pa.Array[Any], block: pa.Array[Any]) -> pa.Array[Any]:
        n = len(source)
        if not n:
            return pa.array([], pa.int64())
        changed = np.ones(n, bool)
        changed[0] = (source[0].as_py(), block[0].as_py()) != self._at
        different = pc.or_(
            pc.not_equal(source.slice(1), source.slice(0, n - 1)),
            pc.not_equal(block.slice(1), block.slice(0, n - 1)),
        )
        changed[1:] = np.asarray(different)
        starts = np.where(changed, np.arange(n), np.iinfo(np.int64).min)
        if not changed[0]:
            starts[0] = -self._row  # the block began so many rows before this batch
        index = np.arange(n) - np.maximum.accumulate(starts)
        self._at, self._row = (source[n - 1].as_py(), block[n - 1].as_py()), int(index[-1]) + 1
        return pa.array(index, pa.int64())


def slot_keys(n: int) -> NDArray[np.int32]:
    """For each of `n` partitions a key that Spark's hash partitioning sends there: (n,)."""
    keys = np.full(n, -1, np.int64)
    low = 0
    while (keys < 0).any():
        candidates = np.arange(low, low + max(1_024, 4 * n), dtype=np.int64)
        # The first candidate of each partition wins: numpy keeps the last assignment, so go backwards.
        partition = (spark_hash(candidates.astype(np.int32)).astype(np.int64) % n)[::-1]
        fresh = keys[partition] < 0
        keys[partition[fresh]] = candidates[::-1][fresh]
        low += len(candidates)
    return keys.astype(np.int32)


def spark_hash(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Spark's `hash(int)`: Murmur3 x86 32-bit of one word, seed 42 (Murmur3_x86_32.hashInt of Spark)."""
    with np.errstate(over="ignore"):
        k = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = ((k << np.uint32(15)) | (k >> np.uint32(17))) * np.uint32(0x1B873593)
        h = np.uint32(_MURMUR_SEED) ^ k
        h = ((h << np.uint32(13)) | (h >> np.uint32(19))) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)  # the length in bytes
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).astype(np.int32)


def text_lengths(column: pa.Array[Any]) -> NDArray[np.int64]:
    """Characters (bytes, where the column is binary) of each row; 0 for null."""
    kind = column.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    lengths = pc.binary_length(column) if binary else pc.utf8_length(column)
    return np.asarray(pc.fill_null(lengths, 0), np.int64)


def _by_bits_and_partition(groups: Iterable[Group]) -> dict[tuple[int, int], int]:
    counts: dict[tuple[int, int], int] = {}
    for g in groups:
        counts[g.bits, g.partition] = counts.get((g.bits, g.partition), 0) + g.documents
    return counts


def _joined(left: pa.Array[Any], right: pa.Array[Any], separator: str = "#") -> pa.Array[Any]:
    joined: pa.Array[Any] = pc.binary_join_element_wise(
        left.cast(pa.string()), right.cast(pa.string()), separator
    )
    return joined
