"""Whose batch is whose: one global order for any number of processes, and all end together."""

import pytest

from spark_ner.train.shards import Shards, write
from tests.fixtures.marks import with_torch
from tests.unit.train.test_shards import ABOUT, texts

pytestmark = with_torch


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return write(tmp_path_factory.mktemp("shards"), [texts(91)], about=ABOUT)


def setup_module() -> None:
    global Loader, TrainConfig, MixConfig
    from spark_ner.train.loader import Loader
    from spark_ner.train.settings import TrainConfig
    from spark_ner.train.texts import MixConfig


def steps(shards: Shards, *, start: int = 0, **how: int) -> list[list[tuple[str, ...]]]:
    """Names of the texts in each batch of each step of one process."""
    settings = {"accumulation": how.pop("accumulation", 1), "loader_processes": how.pop("processes", 0)}
    mix = MixConfig(longest_tokens=40)
    loader = Loader(shards, config=TrainConfig(seed=1, batch_tokens=100, mix=mix, **settings), **how)
    found = [[b.names for b in step] for step in loader.steps(0, start=start)]
    assert len(found) == loader.n_steps(0) - start
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_a_step_is_the_same_on_any_number_of_processes(shards, size):
    alone = steps(shards, accumulation=size)
    together = [steps(shards, rank=rank, size=size) for rank in range(size)]
    assert len({len(own) for own in together}) == 1  # all end together
    for step, batches in enumerate(alone):
        assert batches == [own[step][0] for own in together]


def test_processes_without_a_batch_get_an_empty_one(shards):
    n = sum(len(step) for step in steps(shards))
    size = next(s for s in (2, 3, 5, 7) if n % s)
    last = [steps(shards, rank=rank, size=size)[-1][0] for rank in range(size)]
    assert [bool(names) for names in last] == [rank < n % size for rank in range(size)]


def test_a_run_goes_on_in_mid_epoch(shards):
    assert steps(shards, start=5, accumulation=2) == steps(shards, accumulation=2)[5:]


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_that_read_ahead_change_nothing(shards, processes):
    assert steps(shards, processes=processes, accumulation=2) == steps(shards, accumulation=2)
