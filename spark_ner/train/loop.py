"""Training, top to bottom: plain PyTorch. Of other processes it knows what `distributed.Group` says.

Losses are added up over all processes and divided by the number of targets of the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from spark_ner.errors import SparkNerError
from spark_ner.train.checkpoint import Checkpoints, Progress, load_optimizer, optimizer_tensors
from spark_ner.train.distributed import Group, Solo
from spark_ner.train.loader import Loader
from spark_ner.train.meter import Meter
from spark_ner.train.objective import Objective
from spark_ner.train.settings import LoopConfig
from spark_ner.train.shards import Shards
from spark_ner.train.texts import Batch

log = logging.getLogger(__name__)

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class NonFiniteLossError(SparkNerError, ArithmeticError):
    """When a loss is not a number; raised before the optimizer's step, naming the batch's texts."""


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and how one tells how good it is.

    Attributes:
        model: whatever the objective can call.
        shards: the training texts.
        objective: what is minimized.
        score: how good the model is, higher is better (strict dev F1); called by every process after each
            epoch.
    """

    model: nn.Module
    shards: Shards
    objective: Objective
    score: Callable[[], float] | None = None


def train(
    task: Task,
    *,
    config: LoopConfig,
    group: Group | None = None,
    checkpoints: Checkpoints | None = None,
    meter: Meter | None = None,
) -> Progress:
    """Train the task's model in place; the same settings, shards and thread count give the same weights.

    Args:
        task: what is trained.
        config: the settings.
        group: the processes that train together; None is this one alone.
        checkpoints: where to write them and to go on from; None: neither.
        meter: takes loss, speed and waiting times.

    Raises:
        NonFiniteLossError: before the step that it would have spoilt.
        CheckpointError: the output's checkpoints are of another training.
    """
    meter = meter or Meter()
    run = _Run(task, config, group or Solo(), checkpoints, meter)
    progress = run.progress
    for epoch in range(progress.epoch, config.epochs):
        task.model.train()
        for step in run.loader.steps(epoch, start=progress.epoch_step):
            run.step(epoch, step)
            if progress.step % config.checkpoint_steps == 0:
                run.save()
        began = time.monotonic()
        f1 = task.score() if task.score else float(epoch)
        meter.epoch(epoch, f1 if task.score else None, seconds=time.monotonic() - began)
        progress.epoch, progress.epoch_step = epoch + 1, 0
        if f1 > progress.best_f1 and run.save_best(epoch):
            progress.best_f1, progress.best_epoch = f1, epoch
        run.save()
        if config.patience and epoch - progress.best_epoch >= config.patience:
            log.info("no better dev F1 for %d epochs: stopped after epoch %d", config.patience, epoch + 1)
            break
    return progress


class _Run:
    """What a step needs, made ready or taken up again from the last checkpoint."""

    def __init__(
        self,
        task: Task,
        config: LoopConfig,
        group: Group,
        checkpoints: Checkpoints | None,
        meter: Meter,
    ) -> None:
        self.model, self.config, self.group = task.model, config, group
        self.checkpoints, self.meter = checkpoints, meter
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed + group.rank)
        self.model.to(group.device)
        optimizer = torch.optim.AdamW(parameter_groups(self.model, config), fused=True)
        self.progress = _restore(self.model, optimizer, checkpoints, group)
        self.called, self.optimizer = group.prepare(self.model, optimizer)
        self.objective = task.objective
        self.loader = Loader(task.shards, config=config, rank=group.rank, size=group.size)
        self.n_steps = config.epochs * self.loader.n_steps(0)
        self.scaler = torch.amp.GradScaler(group.device.type) if config.precision == "fp16" else None
        if self.scaler and self.progress.scaler:
            self.scaler.load_state_dict(dict(self.progress.scaler))

    def step(self, epoch: int, batches: list[Batch]) -> None:
        """Forward and backward over the batches of this process, one optimizer step of all."""
        progress, group = self.progress, self.group
        losses = torch.zeros((), dtype=torch.float64)
        n_targets = 0
        for at, batch in enumerate(batches):
            with group.accumulating(self.called, last=at == len(batches) - 1):
                loss, n = self._loss(batch)
                (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]
            losses += loss.detach().double().cpu()
            n_targets += n
        group.synchronize(self.optimizer)
        total, count = group.total([float(losses), n_targets])
        self._check(total, float(losses), epoch, batches)
        rate = _rate(progress.step, self.n_steps, self.config.warmup_share)
        for settings in self.optimizer.param_groups:
            settings["lr"] = settings["full_lr"] * rate
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_mul_(gradients, group.gradient_scale / max(1.0, count))
        torch.nn.utils.clip_grad_norm_(parameters, self.config.clip_norm)
        group.step(self.optimizer, self.scaler)
        if self.scaler:
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.epoch_step += 1
        self.meter.step(
            progress.step,
            self.n_steps,
            loss=total / max(1.0, count),
            n_tokens=sum(int(b.attention_mask.sum()) for b in batches),
            rate=rate,
            waited_s=self.loader.waited_s,
        )

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        device, precision = self.group.device, self.config.precision
        with torch.autocast(device.type, _DTYPES[precision], enabled=precision != "fp32"):
            return self.objective(self.called, batch, device)

    def _check(self, total: float, mine: float, epoch: int, batches: list[Batch]) -> None:
        if total - total == 0:  # neither infinite nor no number
            return
        bad = () if mine - mine == 0 else tuple(name for b in batches for name in b.names)
        names = [name for part in self.group.gather(bad) for name in part]
        raise NonFiniteLossError(f"the loss is {total} at epoch {epoch}, texts {', '.join(names)}")

    def save(self) -> None:
        """Write a checkpoint; a full disk is a warning, since the one before it is still there."""
        if self.checkpoints is None:
            return
        generators = self.group.gather(torch.get_rng_state())
        if self.group.rank:
            return
        if self.scaler:
            self.progress.scaler = dict(self.scaler.state_dict())
        try:
            self.checkpoints.save(
                self.progress,
                model=self.model.state_dict(),
                optimizer=optimizer_tensors(self.model, self.optimizer),
                generators=generators,
            )
        except OSError as error:
            log.warning("no checkpoint at step %d: %s", self.progress.step, error)
        else:
            self.checkpoints.drop_other_bests(self.progress.best_epoch)

    def save_best(self, epoch: int) -> bool:
        """Keep the weights of the best epoch so far; False where they could not be written."""
        done = True
        if self.checkpoints and self.group.rank == 0:
            try:
                self.checkpoints.save_best(self.model.state_dict(), epoch=epoch)
            except OSError as error:
                log.warning("the weights of epoch %d, the best so far, were not kept: %s", epoch + 1, error)
                done = False
        return self.group.gather(done)[0]


def _restore(
    model: nn.Module, optimizer: torch.optim.Optimizer, checkpoints: Checkpoints | None, group: Group
) -> Progress:
    """Model, optimizer and generator as the newest checkpoint has them, and where it stands."""
    found = checkpoints.load() if checkpoints else None
    steps = group.gather(found[0].step if found else -1)
    if len(set(steps)) > 1:
        raise SparkNerError(f"the processes see different checkpoints (steps {steps}): is the output shared?")
    if not found:
        return Progress()
    progress, tensors = found
    model.load_state_dict(tensors["model"])
    load_optimizer(model, optimizer, tensors["optimizer"])
    if (own := tensors["generators"].get(str(group.rank))) is not None:
        torch.set_rng_state(own)
    return progress


def _rate(step: int, n_steps: int, warmup_share: float) -> float:
    """Share of the full learning rate: linear up, linear down to 0."""
    n_warm = max(1, int(warmup_share * n_steps))
    return min((step + 1) / n_warm, max(0.0, (n_steps - step) / max(1, n_steps - n_warm)))


def parameter_groups(model: nn.Module, config: LoopConfig) -> list[dict[str, object]]:
    """Optimizer groups: head and type rows at their own rate, lower layers slower, vectors without decay."""
    n_layers = int(getattr(model.config, "num_hidden_layers", 0))
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if name.startswith("classifier") or "token_type_embeddings" in name:
            rate = config.head_learning_rate
        elif ".layer." in name:
            depth = int(name.split(".layer.")[1].split(".")[0])
            rate = config.learning_rate * config.layer_decay ** (n_layers - 1 - depth)
        else:
            rate = config.learning_rate * config.layer_decay**n_layers
        decay = 0.0 if parameter.ndim < 2 else config.weight_decay
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": p, "lr": rate, "full_lr": rate, "weight_decay": decay}
        for (rate, decay), p in groups.items()
    ]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout and gradients, and back in the mode it was in."""
    was = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was)
