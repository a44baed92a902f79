"""Shards: whole or not there, each text once an epoch, the same order from the same seed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from spark_ner.errors import TrainingDataError
from spark_ner.train import shards as module
from spark_ner.train.shards import About, Shards, write
from spark_ner.train.texts import Example

ABOUT = About(fingerprint="f", types=("PER",), allowed=((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)), pad_id=7)


def texts(n: int, *, first: int = 0) -> list[Example]:
    rng = np.random.default_rng(first)
    made = []
    for i in range(first, first + n):
        size = int(rng.integers(3, 40))
        made.append(
            Example(
                f"a:{i}",
                np.full(size, i, np.int32),
                rng.integers(0, 6, size).astype(np.uint8),
                rng.integers(0, 4, size).astype(np.uint16),
            )
        )
    return made


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_ROWS", 4)
    monkeypatch.setattr(module, "_FILE_ROWS", 10)
    monkeypatch.setattr(module, "_POOL_CHUNKS", 3)


def test_every_text_comes_once_an_epoch_as_it_was_written(tmp_path, small_chunks):
    made = texts(57)
    shards = write(tmp_path, [made], about=ABOUT)
    assert len(list(tmp_path.glob("part-000-*.arrow"))) == 6
    seen = []
    for rows in shards.epoch(0, seed=1, batch_tokens=64):
        batch = shards.read(rows)
        assert shards.names(rows) == batch.names
        assert batch.input_ids.size <= 64
        for at, name in enumerate(batch.names):
            example, n = made[int(name[2:])], int(batch.attention_mask[at].sum())
            assert batch.input_ids[at, :n].tolist() == example.ids.tolist()
            assert batch.token_type_ids[at, :n].tolist() == example.case.tolist()
            assert batch.target[at, :n].tolist() == example.target.tolist()
            assert (batch.input_ids[at, n:] == 7).all()
            assert not batch.target[at, n:].any()
        seen.extend(batch.names)
    assert sorted(seen) == sorted(e.name for e in made)
    assert shards.about == replace(
        ABOUT,
        n_rows=(57,),
        n_tokens=(sum(len(e.ids) for e in made),),
        n_targets=(sum(int((e.target > 0).sum()) for e in made),),
    )


def test_the_order_is_of_seed_and_epoch_and_each_epoch_has_its_variant(tmp_path, small_chunks):
    shards = write(tmp_path, [texts(30), texts(30, first=100)], about=ABOUT)

    def order(epoch: int, seed: int = 1) -> list[str]:
        return [n for rows in shards.epoch(epoch, seed=seed, batch_tokens=64) for n in shards.names(rows)]

    assert order(0) == order(0)
    assert order(0) != order(0, seed=2)
    assert order(0) != order(2)
    assert sorted(order(0)) == sorted(order(2)) == sorted(order(0, seed=2))
    assert all(int(n[2:]) >= 100 for n in order(1))


@pytest.mark.parametrize("damage", ["no manifest", "a cut file", "a file gone"])
def test_a_folder_that_is_not_whole_is_refused(tmp_path, damage):
    write(tmp_path, [texts(5)], about=ABOUT)
    (file,) = tmp_path.glob("part-*.arrow")
    if damage == "no manifest":
        (tmp_path / "shards.json").unlink()
        message = "no finished shards"
    elif damage == "a cut file":
        size = file.stat().st_size
        file.write_bytes(file.read_bytes()[:-10])
        message = f"has {size - 10} bytes where {size} were written"
    else:
        file.unlink()
        message = "has 0 bytes"
    with pytest.raises(TrainingDataError, match=message):
        Shards(tmp_path)


def test_writing_again_leaves_nothing_of_the_old(tmp_path, small_chunks):
    write(tmp_path, [texts(50)], about=ABOUT)
    (tmp_path / "part-000-00099.123.part").write_bytes(b"of a killed process")
    write(tmp_path, [texts(3)], about=ABOUT)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["part-000-00000.arrow", "shards.json"]
    assert list(json.loads((tmp_path / "shards.json").read_text())["files"]) == ["part-000-00000.arrow"]


def test_a_killed_writer_leaves_no_shards(tmp_path):
    def texts_then_death():
        yield from texts(3)
        raise KeyboardInterrupt

    write(tmp_path, [texts(3)], about=ABOUT)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, [texts_then_death()], about=ABOUT)
    with pytest.raises(TrainingDataError, match="no finished shards"):
        Shards(tmp_path)


def test_no_text_at_all_is_an_error(tmp_path):
    with pytest.raises(TrainingDataError, match="no text of the training data"):
        write(tmp_path, [[]], about=ABOUT)
