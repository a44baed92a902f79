"""Checkpoints that are whole or do not count: safetensors and JSON, never pickles.

A checkpoint is a folder `step-<number>`: weights, optimizer state, generator states, and `state.json` with
the place in the data and a sha256 of each file. It is written aside, flushed to the disk and renamed, so that
a process killed at any line leaves the one before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from spark_ner.errors import CheckpointError

log = logging.getLogger(__name__)

STATE = "state.json"
_PREFIX = "step-"


@dataclass(kw_only=True)
class Progress:
    """Where a training stands: everything beside tensors that its next step depends on."""

    step: int = 0  # optimizer steps taken
    epoch: int = 0
    epoch_step: int = 0  # steps taken in this epoch
    best_f1: float = -1.0
    best_epoch: int = -1
    scaler: dict[str, float] = field(default_factory=dict)


Tensors = Mapping[str, torch.Tensor]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: str | Path, *, fingerprint: str = "", keep: int = 2) -> None:
        """Name the place; nothing is read or written yet.

        Args:
            directory: made when the first is written.
            fingerprint: of settings and data; checkpoints with another one are of another training.
            keep: how many are left when a new one is whole.
        """
        self.directory, self._fingerprint = Path(directory), fingerprint
        self._keep = keep

    def save(
        self, progress: Progress, *, model: Tensors, optimizer: Tensors, generators: Sequence[torch.Tensor]
    ) -> None:
        """Write one and drop the oldest.

        Args:
            progress: where the training stands.
            model: weights by name.
            optimizer: optimizer state by name.
            generators: (n_processes,) generator states by rank.

        Raises:
            OSError: it could not be written (a full disk); those before it are still there.
        """
        target = self.directory / f"{_PREFIX}{progress.step:09d}"
        aside = self.directory / f".{target.name}.{os.getpid()}"
        self.directory.mkdir(parents=True, exist_ok=True)
        for left in self.directory.glob(f".{_PREFIX}*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        try:
            aside.mkdir()
            states = {str(rank): state for rank, state in enumerate(generators)}
            sums = {
                name: _write(aside / name, tensors)
                for name, tensors in (
                    ("model.safetensors", model),
                    ("optimizer.safetensors", optimizer),
                    ("generators.safetensors", states),
                )
            }
            with (aside / STATE).open("w", encoding="utf-8") as out:
                tree = {"fingerprint": self._fingerprint, "progress": asdict(progress), "sha256": sums}
                json.dump(tree, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            shutil.rmtree(target, ignore_errors=True)  # the same step of a run before this one
            os.replace(aside, target)
            _sync_directory(self.directory)
        except Exception:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        for old in self._whole()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self) -> tuple[Progress, dict[str, dict[str, torch.Tensor]]] | None:
        """The newest that is whole, as progress and tensors by file (`model`, `optimizer`, `generators`).

        One that is incomplete or damaged is passed over with a warning. None where there is none.

        Raises:
            CheckpointError: the newest whole one is of another training.
        """
        for folder in reversed(self._named()):
            try:
                fingerprint, progress, tensors = _read(folder)
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                log.warning("%s is not whole (%s): the checkpoint before it is taken", folder, _short(error))
                continue
            if fingerprint != self._fingerprint:
                raise CheckpointError(
                    f"{folder} is of a training with other settings or data: give another output folder, or "
                    "remove this one"
                )
            log.info("going on from %s", folder)
            return progress, tensors
        return None

    def save_best(self, model: Tensors, *, epoch: int) -> None:
        """Write the weights of the best epoch so far; `drop_other_bests` after the next checkpoint."""
        self.directory.mkdir(parents=True, exist_ok=True)
        target = self.best(epoch)
        aside = target.with_suffix(f".{os.getpid()}.part")
        try:
            _write(aside, model)
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
        _sync_directory(self.directory)

    def best(self, epoch: int) -> Path:
        """Where the weights of an epoch that was the best are."""
        return self.directory / f"best-{epoch:04d}.safetensors"

    def drop_other_bests(self, epoch: int) -> None:
        """Remove the weights of epochs that are no longer the best."""
        for file in self.directory.glob("best-*"):
            if file != self.best(epoch):
                file.unlink(missing_ok=True)

    def _named(self) -> list[Path]:
        return sorted(p for p in self.directory.glob(f"{_PREFIX}*") if p.is_dir())

    def _whole(self) -> list[Path]:
        return [p for p in self._named() if (p / STATE).is_file()]


def _write(file: Path, tensors: Tensors) -> str:
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, file)
    with file.open("rb") as written:
        os.fsync(written.fileno())
        return hashlib.file_digest(written, "sha256").hexdigest()


def _read(folder: Path) -> tuple[str, Progress, dict[str, dict[str, torch.Tensor]]]:
    tree = json.loads((folder / STATE).read_text(encoding="utf-8"))
    tensors = {}
    for name, digest in tree["sha256"].items():
        with (folder / name).open("rb") as written:
            if hashlib.file_digest(written, "sha256").hexdigest() != digest:
                raise ValueError(f"{name} is damaged")
        tensors[name.removesuffix(".safetensors")] = load_file(folder / name)
    return tree["fingerprint"], Progress(**tree["progress"]), tensors


def _sync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state as tensors named `<parameter>/<state>`."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{names[id(p)]}/{key}": value
        for p, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def load_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Put back what `optimizer_tensors` gave; CheckpointError where the parameters are others."""
    parameters = dict(model.named_parameters())
    for name, value in tensors.items():
        parameter, _, key = name.rpartition("/")
        if parameter not in parameters:
            raise CheckpointError(f"the checkpoint has optimizer state for {parameter}, the model does not")
        optimizer.state[parameters[parameter]][key] = value.to(parameters[parameter].device)
