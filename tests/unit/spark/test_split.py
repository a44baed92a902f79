"""Dealing documents to tasks by length, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ner.sinks.runs import InputFile
from spark_ner.spark.source import BLOCK, ROW, SOURCE
from spark_ner.spark.split import (
    Dealer,
    Group,
    Measured,
    Positions,
    SlotDealer,
    Split,
    slot_keys,
    spark_hash,
    split,
)


def _measured(lengths_by_partition: dict[int, list[int]]) -> Measured:
    groups: dict[tuple[int, int], list[int]] = {}
    for partition, lengths in lengths_by_partition.items():
        for length in lengths:
            groups.setdefault((partition, length.bit_length()), []).append(length)
    return Measured(
        tuple(
            Group(file=None, partition=p, bits=b, documents=len(v), characters=sum(v))
            for (p, b), v in groups.items()
        )
    )


def test_spark_hash_is_sparks() -> None:
    # SELECT hash(0), hash(1), hash(-1), hash(2147483647) in Spark.
    values = np.array([0, 1, -1, 2_147_483_647], np.int32)
    assert spark_hash(values).tolist() == [933211791, -559580957, -1604776387, 133916647]


def test_each_key_hashes_to_its_partition() -> None:
    for n in (1, 2, 3, 200, 1_013):
        keys = slot_keys(n)
        assert (spark_hash(keys).astype(np.int64) % n).tolist() == list(range(n))


def test_tasks_are_as_many_as_the_work_asks() -> None:
    measured = _measured({0: [100] * 10_000})
    assert split(measured, slots=4, task_characters=100_000).n_tasks == 10
    assert split(measured, slots=16, task_characters=100_000).n_tasks == 16
    assert split(_measured({0: [100] * 3}), slots=16, task_characters=100_000).n_tasks == 3
    assert split(Measured(()), slots=16, task_characters=100_000).n_tasks == 1


def test_a_long_document_is_alone_and_first() -> None:
    lengths = {0: [100] * 500, 1: [100] * 499 + [50_000], 2: [60_000]}
    chosen = split(_measured(lengths), slots=2, task_characters=1e9)
    assert chosen.n_alone == 2
    dealt = {p: SlotDealer(chosen, p).deal(np.array(v)) for p, v in lengths.items()}
    alone = {int(dealt[1][499]), int(dealt[2][0])}
    assert alone == {0, 1}
    rest = np.concatenate([dealt[0], dealt[1][:499]])
    assert set(rest.tolist()) == set(range(2, chosen.n_tasks))


def test_loads_are_even() -> None:
    random = np.random.default_rng(1)
    lengths = {p: np.minimum(random.pareto(1.2, 300) * 300, 40_000).astype(int).tolist() for p in range(5)}
    chosen = split(_measured(lengths), slots=4, task_characters=60_000)
    loads = np.zeros(chosen.n_tasks)
    for p, v in lengths.items():
        np.add.at(loads, SlotDealer(chosen, p).deal(np.array(v)), v)
    shared = loads[chosen.n_alone :]
    assert shared.max() < 1.08 * np.median(shared)
    assert len(shared) >= 4


def test_every_row_gets_a_slot_even_if_the_count_was_wrong() -> None:
    chosen = Split(n_tasks=3, n_alone=1, alone_bits=5, first_alone={0: {6: 0}})
    slots = SlotDealer(chosen, 0).deal(np.array([40] * 10 + [0, 1]))
    assert ((slots >= 0) & (slots < 3)).all()


def test_a_rewritten_file_keeps_the_inputs_name() -> None:
    def measured(modified_ms: int, documents: int) -> Measured:
        file = InputFile("a", 10, modified_ms)
        return Measured((Group(file=file, partition=0, bits=3, documents=documents, characters=9),))

    assert measured(1, 2).digest == measured(2, 3).digest
    assert measured(1, 2).contents != measured(2, 2).contents
    assert measured(1, 2).contents == measured(1, 2).contents


def test_positions_go_on_over_batches_and_begin_anew_with_a_block() -> None:
    positions = Positions()

    def names(rows: list[tuple[str, int]]) -> list[str]:
        batch = pa.RecordBatch.from_arrays(
            [pa.array([s for s, _ in rows]), pa.array([b for _, b in rows], pa.int64())],
            names=[SOURCE, BLOCK],
        )
        return positions.name(batch).to_pylist()

    assert names([("f", 0), ("f", 0)]) == ["f#0:0", "f#0:1"]
    assert names([("f", 0), ("f", 64), ("f", 64), ("g", 64)]) == ["f#0:2", "f#64:0", "f#64:1", "g#64:0"]
    assert names([]) == []
    assert names([("g", 64), ("g", 64)]) == ["g#64:1", "g#64:2"]
    assert names([("h", 0)]) == ["h#0:0"]


def test_positions_of_formats_that_know_better() -> None:
    files = pa.RecordBatch.from_arrays([pa.array(["f", "g"])], names=[SOURCE])
    assert Positions().name(files).to_pylist() == ["f", "g"]
    rows = pa.RecordBatch.from_arrays([pa.array(["f", "f"]), pa.array([7, 9])], names=[SOURCE, ROW])
    assert Positions().name(rows).to_pylist() == ["f#7", "f#9"]


def test_the_dealer_matches_columns_by_name() -> None:
    chosen = Split(n_tasks=2)
    dealer = Dealer(("document_id", SOURCE, "text"), "text", "document_id", chosen, slot_keys(2).tolist())
    batch = pa.RecordBatch.from_arrays([pa.array(["a", None]), pa.array(["f", "f"])], names=["text", SOURCE])
    (out,) = dealer(iter([batch]))
    assert out.schema.names == ["document_id", SOURCE, "text", "_ner_slot"]
    assert out.column("text").to_pylist() == ["a", None]
    assert out.column("document_id").to_pylist() == ["f", "f"]
    assert set(out.column("_ner_slot").to_pylist()) == set(slot_keys(2).tolist())
