"""Checkpoints that are whole or do not count (case C58)."""

import shutil

import pytest

from spark_ner.errors import CheckpointError
from tests.fixtures.marks import with_torch

pytestmark = with_torch


def setup_module() -> None:
    global torch, Checkpoints, Progress, checkpoint
    import torch

    from spark_ner.train import checkpoint
    from spark_ner.train.checkpoint import Checkpoints, Progress


def save(folder, step, *, fingerprint="f"):
    ones = torch.ones(3) * step
    Checkpoints(folder, fingerprint=fingerprint).save(
        Progress(step=step, epoch=1, best_f1=0.1 + step),
        model={"w": ones, "tied": ones},
        optimizer={"w/exp_avg": ones / 2},
        generators=[torch.get_rng_state()],
    )


def test_what_is_saved_comes_back(tmp_path):
    save(tmp_path, 100)
    progress, tensors = Checkpoints(tmp_path, fingerprint="f").load()
    assert progress == Progress(step=100, epoch=1, best_f1=100.1)
    assert torch.equal(tensors["model"]["tied"], torch.ones(3) * 100)
    assert torch.equal(tensors["optimizer"]["w/exp_avg"], torch.ones(3) * 50)
    assert torch.equal(tensors["generators"]["0"], torch.get_rng_state())


def test_nothing_there_is_none(tmp_path):
    assert Checkpoints(tmp_path / "none").load() is None


@pytest.mark.parametrize(
    "damage", ["no state", "half of the weights", "no weights", "one bit", "half a state"]
)
def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path, damage, caplog):
    save(tmp_path, 100)
    save(tmp_path, 200)
    newest = tmp_path / "step-000000200"
    weights, state = newest / "model.safetensors", newest / "state.json"
    if damage == "no state":
        state.unlink()
    elif damage == "half of the weights":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "one bit":
        raw = bytearray(weights.read_bytes())
        raw[-1] ^= 1
        weights.write_bytes(bytes(raw))
    else:
        state.write_text(state.read_text()[:40])
    progress, tensors = Checkpoints(tmp_path, fingerprint="f").load()
    assert progress.step == 100
    assert torch.equal(tensors["model"]["w"], torch.ones(3) * 100)
    assert f"{newest} is not whole" in caplog.text


def test_those_left_over_are_dropped_and_the_newest_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-000000003", "step-000000004"]


def test_another_training_is_refused(tmp_path):
    save(tmp_path, 100, fingerprint="other")
    with pytest.raises(CheckpointError, match="of a training with other settings or data"):
        Checkpoints(tmp_path, fingerprint="f").load()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_disk_that_is_full_leaves_those_before_and_no_rubbish(tmp_path, at, monkeypatch):
    save(tmp_path, 100)
    written = []

    def full(file, tensors):
        if len(written) == at:
            raise OSError(28, "No space left on device")
        written.append(file)
        return write(file, tensors)

    write = checkpoint._write
    monkeypatch.setattr(checkpoint, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 200)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000100"]


def test_what_a_killed_process_left_is_no_checkpoint_and_is_cleared_away(tmp_path):
    save(tmp_path, 100)
    shutil.copytree(tmp_path / "step-000000100", tmp_path / ".step-000000300.4711")
    assert Checkpoints(tmp_path, fingerprint="f").load()[0].step == 100
    save(tmp_path, 200)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000000100", "step-000000200"]


def test_the_best_weights_stay_until_a_better_checkpoint_is_whole(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_best({"w": torch.zeros(2)}, epoch=0)
    checkpoints.save_best({"w": torch.ones(2)}, epoch=2)
    assert checkpoints.best(0).is_file()
    checkpoints.drop_other_bests(2)
    assert [p.name for p in tmp_path.iterdir()] == ["best-0002.safetensors"]


def test_optimizer_state_of_other_parameters_is_refused():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(CheckpointError, match="optimizer state for gone, the model does not"):
        checkpoint.load_optimizer(model, optimizer, {"gone/step": torch.ones(1)})
