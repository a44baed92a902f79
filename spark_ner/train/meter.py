"""What a training shows: a bar on a terminal, JSON lines in its log, and trackers where they are wanted."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_ner.errors import DependencyError

if TYPE_CHECKING:
    from tqdm import tqdm

Tracker = Callable[[Mapping[str, float], int], None]
_EVERY_S = 5.0  # at least between two lines


class Meter:
    """Loss, speed and waiting times of one process; without a file it is silent but for a terminal's bar."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        trackers: Sequence[Tracker] = (),
        bar: bool = False,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Show what there is.

        Args:
            file: takes a JSON line every few seconds and after each epoch.
            trackers: are called with the same lines.
            bar: on standard error, where that is a terminal.
            beat: is called at each step.
        """
        self._file, self._trackers, self._beat = file, trackers, beat
        self._bar: tqdm[None] | None = None
        self._with_bar = bar and sys.stderr.isatty()
        self._losses: list[float] = []
        self._tokens = 0
        self._since = time.monotonic()
        self._waited_s = self._now_waited_s = 0.0
        self._last: dict[str, float] = {}

    def step(
        self, step: int, n_steps: int, *, loss: float, n_tokens: int, rate: float, waited_s: float
    ) -> None:
        """Take one step; `waited_s` is what this process has waited for batches since it began."""
        self._beat()
        self._losses.append(loss)
        self._tokens += n_tokens
        self._last = {"step": step, "n_steps": n_steps, "learning_rate_share": round(rate, 6)}
        self._now_waited_s = waited_s
        self._show(n_steps, loss)
        if time.monotonic() - self._since >= _EVERY_S:
            self._tell()

    def epoch(self, epoch: int, f1: float | None, *, seconds: float) -> None:
        """Tell an epoch's dev F1 (percent; None where there is no dev set) and the seconds that it took."""
        self._tell()
        line: dict[str, float] = {"epoch": epoch + 1}
        if f1 is not None:
            line |= {"dev_f1": round(f1, 2), "dev_s": round(seconds, 2)}
        self._write(line, epoch + 1)
        self._since = time.monotonic()

    def _tell(self) -> None:
        """A line about the steps since the last one."""
        if not self._losses:
            return
        seconds = max(time.monotonic() - self._since, 1e-9)
        line = {
            **self._last,
            "loss": round(sum(self._losses) / len(self._losses), 6),
            "tokens_per_s": round(self._tokens / seconds, 1),
            "wait_share": round((self._now_waited_s - self._waited_s) / seconds, 4),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        self._write(line, int(self._last["step"]))
        self._losses, self._tokens, self._waited_s = [], 0, self._now_waited_s
        self._since = time.monotonic()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _show(self, n_steps: int, loss: float) -> None:
        if not self._with_bar:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=n_steps, unit="step", file=sys.stderr)
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update()

    def _write(self, line: dict[str, float], step: int) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"time": round(time.time(), 3), **line}) + "\n")
        for tracker in self._trackers:
            tracker(line, step)


def trackers_of(names: Sequence[str], output: Path) -> list[Tracker]:
    """The trackers of these names; DependencyError where one is not installed."""
    makers = {"tensorboard": _tensorboard, "mlflow": _mlflow}
    return [makers[name](output) for name in names]


def _tensorboard(output: Path) -> Tracker:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise DependencyError("tensorboard is not installed: pip install tensorboard") from None
    writer = SummaryWriter(str(output / "tensorboard"))

    def track(line: Mapping[str, float], step: int) -> None:
        for name, value in line.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return track


def _mlflow(output: Path) -> Tracker:
    try:
        import mlflow
    except ImportError:
        raise DependencyError("mlflow is not installed: pip install mlflow") from None

    def track(line: Mapping[str, float], step: int) -> None:
        mlflow.log_metrics(dict(line), step=step)

    return track
