"""The one file that starts a training: in this process, by Horovod on Spark, or by Spark's TorchDistributor.

A lost process ends the whole attempt; the next attempt goes on from the last checkpoint.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from spark_ner.errors import ConfigError, DependencyError, SparkNerError
from spark_ner.train.settings import LoopConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Outcome = Mapping[str, float]
C = TypeVar("C", bound=LoopConfig)
FAILURES = "failures"  # in the run's folder: why each process of the last attempt ended


class LaunchError(SparkNerError, RuntimeError):
    """When a training was lost more often than `max_restarts` allows."""


def launch(config: C, work: Callable[[C], Outcome], *, spark: SparkSession | None = None) -> Outcome:
    """Run a training that was made ready, to its end.

    Args:
        config: names the launcher and the number of processes.
        work: what each process does; an importable function.
        spark: the session whose executors run the processes; needed for all launchers but "local".

    Returns:
        What `work` returned in the first process.

    Raises:
        ConfigError: more processes than the session has slots.
        DependencyError: what the launcher needs is not installed.
        SparkNerError: a process raised it; starting again would only meet it again.
        LaunchError: it failed more than `max_restarts` times for want of a process.
    """
    if config.launcher == "local":
        return work(config)
    if spark is None:
        raise ConfigError(f"launcher = {config.launcher!r} needs a Spark session")
    check_slots(spark, config.processes)
    start = {"horovod": _horovod, "torch": _torch}[config.launcher]
    failures = Path(config.output) / FAILURES
    for attempt in range(config.max_restarts + 1):
        shutil.rmtree(failures, ignore_errors=True)
        try:
            return start(_Process(work, config), config, spark)
        except DependencyError:
            raise
        except Exception as error:
            own, reason = _why(failures, error)
            if own is not None:
                raise own from None
            if attempt == config.max_restarts:
                raise LaunchError(f"the training was lost {attempt + 1} times; last: {reason}") from error
            log.warning(
                "the training was lost (%s): attempt %d of %d goes on from the last checkpoint",
                reason,
                attempt + 2,
                config.max_restarts + 1,
            )
    raise AssertionError("unreachable")


class _Process:
    """The work of one process, which leaves in the run's folder why it failed."""

    def __init__(self, work: Callable[[C], Outcome], config: C) -> None:
        self._work: Callable[[C], Outcome] = work
        self._config = config

    def __call__(self) -> Outcome:
        try:
            return self._work(self._config)
        except BaseException as error:
            kind = type(error)
            told = {"module": kind.__module__, "name": kind.__qualname__, "message": str(error)}
            folder = Path(self._config.output) / FAILURES
            folder.mkdir(exist_ok=True)
            (folder / f"{os.getpid()}.json").write_text(json.dumps(told), encoding="utf-8")
            raise


def check_slots(spark: SparkSession, wanted: int) -> None:
    """ConfigError where the session cannot run so many tasks at once; with dynamic allocation it may grow."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    there = spark.sparkContext.defaultParallelism // int(conf.get("spark.task.cpus", "1"))
    if wanted > there:
        raise ConfigError(
            f"{wanted} processes wanted, {there} slots are there (master {spark.sparkContext.master}): lower "
            "processes, or start more executors"
        )


def _horovod(process: _Process, config: LoopConfig, spark: SparkSession) -> Outcome:
    try:
        import horovod.spark
    except ImportError as error:
        raise DependencyError(f"horovod is not installed ({error}): make horovod builds it") from None
    outcomes: list[Outcome] = horovod.spark.run(
        process,
        num_proc=config.processes,
        start_timeout=int(config.start_timeout_s),
        use_gloo=True,
        env={**os.environ, **_horovod_env(config)},
        verbose=int(os.environ.get("SPARK_NER_HOROVOD_VERBOSE", "0")),
    )
    return outcomes[0]


def _horovod_env(config: LoopConfig) -> dict[str, str]:
    return {
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(config.stall_s)),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(int(config.stall_s / 2)),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(int(config.stall_s)),
    }


def _torch(process: _Process, config: LoopConfig, spark: SparkSession) -> Outcome:
    from pyspark.ml.torch.distributor import TorchDistributor

    on_gpu = float(spark.sparkContext.getConf().get("spark.task.resource.gpu.amount", "0")) > 0
    distributor = TorchDistributor(num_processes=config.processes, local_mode=False, use_gpu=on_gpu)
    return cast(Outcome, distributor.run(process))


def _why(failures: Path, error: BaseException) -> tuple[SparkNerError | None, str]:
    """The error of this package that a process ended with, if any did; and the reason in words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[-1][:300] if lines else 'no message'}"
    for file in sorted(failures.glob("*.json")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:  # half written
            continue
        reason = f"{told['name']}: {told['message'][:300]}"
        module = told["module"]
        kind = getattr(importlib.import_module(module), told["name"], None) if _ours(module) else None
        if isinstance(kind, type) and issubclass(kind, SparkNerError):
            return kind(told["message"]), reason
    return None, reason


def _ours(module: str) -> bool:
    return module == "spark_ner" or module.startswith("spark_ner.")
