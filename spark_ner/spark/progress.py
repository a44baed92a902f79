"""How far a run is: a bar on a terminal, a JSON line a micro-batch elsewhere."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import TextIO

from pyspark.sql import SparkSession

from spark_ner.sinks.runs import RunRow

_WIDTH = 30
_EVERY_S = 0.5
_SHOWN = (
    *("batch_id", "documents", "words", "entities", "nulls", "errors", "n_tasks", "seconds", "words_per_s"),
    *("longest_task_s", "median_task_s", "padding_share", "replayed"),
)


class Progress:
    """Use it around a run; `batch` is called with each row of the runs table."""

    def __init__(self, spark: SparkSession, out: TextIO) -> None:
        self._spark, self._out = spark, out
        self._bar = out.isatty()
        self._batches = self._words = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._bar:
            self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._write("\r\033[K")

    def batch(self, row: RunRow) -> None:
        """A micro-batch is in the table."""
        self._batches += 1
        self._words += row.words or 0
        if not self._bar:
            self._write(batch_line(row) + "\n")

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            done, total = self._tasks()
            self._write("\r\033[K" + bar_line(done, total, batches=self._batches, words=self._words))

    def _tasks(self) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [s for s in stages if s is not None and s.numTasks]
        return sum(s.numCompletedTasks for s in running), sum(s.numTasks for s in running)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def batch_line(row: RunRow) -> str:
    """One JSON object with the main figures; the runs table has them all."""
    tree = {name: getattr(row, name) for name in _SHOWN}
    return json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in tree.items()})


def bar_line(done: int, total: int, *, batches: int, words: int) -> str:
    """The tasks of the running stages as a bar, and what is in the table."""
    filled = _WIDTH * done // total if total else 0
    bar = "#" * filled + "." * (_WIDTH - filled)
    return f"[{bar}] {done}/{total} tasks  {batches} batches, {words:,} words done"
