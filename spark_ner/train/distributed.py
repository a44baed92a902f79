"""Rank, size and the traffic between the processes of a training: Horovod, torch.distributed, or one process.

The loop adds losses up over tokens, not over batches, so gradients are summed over all processes and divided
by the number of targets of the whole step: the same global batch gives the same step on any number of
processes. `Group.gradient_scale` is what turns the gradients that a kind of group leaves behind into that
sum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import torch
from torch import nn

from spark_ner.errors import DependencyError

if TYPE_CHECKING:
    from spark_ner.train.settings import LoopConfig

T = TypeVar("T")


class Group(Protocol):
    """The processes of one training, seen from one of them."""

    rank: int
    size: int  # processes that read different batches
    device: torch.device
    gradient_scale: float

    def prepare(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model to call and the optimizer to step; parameters are made equal everywhere."""
        ...

    def accumulating(self, model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around a forward and backward pass; gradients travel in the `last` of a step alone."""
        ...

    def synchronize(self, optimizer: torch.optim.Optimizer) -> None:
        """After the last backward pass: gradients hold every process's part when this returns."""
        ...

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
        """One optimizer step on synchronized gradients."""
        ...

    def total(self, values: Sequence[float]) -> list[float]:
        """Each value added up over all processes."""
        ...

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank, on all of them."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Solo:
    """One process."""

    rank, size, gradient_scale = 0, 1, 1.0

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")

    def prepare(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """As they are."""
        return model, optimizer

    def accumulating(self, model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Nothing to do."""
        return contextlib.nullcontext()

    def synchronize(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing to do."""

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
        """One optimizer step."""
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)

    def total(self, values: Sequence[float]) -> list[float]:
        """As they are."""
        return list(values)

    def gather(self, value: T) -> list[T]:
        """The one value."""
        return [value]

    def close(self) -> None:
        """Nothing to do."""


class HorovodGroup(Solo):
    """Horovod over Gloo, or NCCL where it was built in; gradients add up over `accumulation` passes."""

    def __init__(self, config: LoopConfig) -> None:
        """Join; DependencyError where Horovod is not built."""
        try:
            import horovod.torch as hvd
        except ImportError as error:
            raise DependencyError(f"horovod is not installed ({error}): make horovod builds it") from None
        hvd.init()
        super().__init__(torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else None)
        self._hvd, self._config = hvd, config
        self.rank, self.size = hvd.rank(), hvd.size()

    def prepare(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Rank 0's parameters and optimizer state everywhere, and Horovod's hooks on the gradients."""
        hvd = self._hvd
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        compression = hvd.Compression.fp16 if self._config.compression == "fp16" else hvd.Compression.none
        return model, hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=compression,
            backward_passes_per_step=self._config.accumulation,
            op=hvd.Sum,
        )

    def synchronize(self, optimizer: torch.optim.Optimizer) -> None:
        """Wait for the sums that the hooks started."""
        optimizer.synchronize()  # type: ignore[attr-defined]

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
        """One step, without summing a second time."""
        with optimizer.skip_synchronize():  # type: ignore[attr-defined]
            super().step(optimizer, scaler)

    def total(self, values: Sequence[float]) -> list[float]:
        """Each value added up over all processes."""
        mine = torch.tensor(list(values), dtype=torch.float64)
        return cast(list[float], self._hvd.allreduce(mine, op=self._hvd.Sum, name="total").tolist())

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank."""
        return cast(list[T], self._hvd.allgather_object(value, name="gather"))

    def close(self) -> None:
        """Leave; the others are not waited for."""
        self._hvd.shutdown()


class TorchGroup(Solo):
    """torch.distributed with DDP; the launcher has set rank, size and address in the environment."""

    def __init__(self, config: LoopConfig) -> None:
        """Join, waiting at most `stall_s` for the others."""
        from datetime import timedelta

        import torch.distributed as dist

        on_gpu = torch.cuda.is_available()
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=config.stall_s))
        super().__init__(torch.device("cuda", torch.cuda.current_device()) if on_gpu else None)
        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.gradient_scale = float(self.size)  # DDP leaves the mean

    def prepare(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model in DDP."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model, broadcast_buffers=False), optimizer

    @contextlib.contextmanager
    def accumulating(self, model: nn.Module, *, last: bool) -> Iterator[None]:
        """Gradients stay here until the last pass."""
        with contextlib.nullcontext() if last else model.no_sync():  # type: ignore[operator]
            yield

    def total(self, values: Sequence[float]) -> list[float]:
        """Each value added up over all processes."""
        mine = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        self._dist.all_reduce(mine)
        return cast(list[float], mine.tolist())

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank."""
        values: list[T | None] = [None] * self.size
        self._dist.all_gather_object(values, value)
        return cast(list[T], values)

    def close(self) -> None:
        """Leave."""
        self._dist.destroy_process_group()


def join(config: LoopConfig) -> Group:
    """The group that the launcher's processes form."""
    if config.launcher == "horovod":
        return HorovodGroup(config)
    if config.launcher == "torch":
        return TorchGroup(config)
    return Solo(torch.device("cuda") if torch.cuda.is_available() else None)
