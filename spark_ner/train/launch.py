"""The one file that starts a training: in this process, by Horovod on Spark, or by Spark's TorchDistributor.

A lost process ends the whole attempt; the next attempt goes on from the last checkpoint.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from spark_ner.errors import ConfigError, DependencyError, SparkNerError, UserError
from spark_ner.train.run import run_rank
from spark_ner.train.settings import TrainConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Outcome = Mapping[str, float]


class LaunchError(SparkNerError, RuntimeError):
    """When a training was lost more often than `max_restarts` allows."""


def launch(config: TrainConfig, *, spark: SparkSession | None = None) -> Outcome:
    """Run the training that `run.prepare` made ready, to its end.

    Args:
        config: names the launcher and the number of processes.
        spark: the session whose executors run the processes; needed for all launchers but "local".

    Returns:
        Steps taken, best dev F1 (percent) and its epoch.

    Raises:
        ConfigError: more processes than the session has slots.
        DependencyError: what the launcher needs is not installed.
        LaunchError: it failed more than `max_restarts` times for want of a process.
    """
    if config.launcher == "local":
        return run_rank(config)
    if spark is None:
        raise ConfigError(f"launcher = {config.launcher!r} needs a Spark session")
    check_slots(spark, config.processes)
    start = _START[config.launcher]
    for attempt in range(config.max_restarts + 1):
        try:
            return start(config, spark)
        except UserError:
            raise
        except Exception as error:
            if (own := _own_error(error)) is not None:
                raise own from None
            if attempt == config.max_restarts:
                raise LaunchError(
                    f"the training was lost {attempt + 1} times; last: {type(error).__name__}: {_tail(error)}"
                ) from error
            log.warning(
                "the training was lost (%s: %s): attempt %d of %d goes on from the last checkpoint",
                type(error).__name__,
                _tail(error),
                attempt + 2,
                config.max_restarts + 1,
            )
    raise AssertionError("unreachable")


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


def _horovod(config: TrainConfig, spark: SparkSession) -> Outcome:
    try:
        import horovod.spark
    except ImportError as error:
        raise DependencyError(f"horovod is not installed ({error}): make horovod builds it") from None
    outcomes: list[Outcome] = horovod.spark.run(
        run_rank,
        args=(config,),
        num_proc=config.processes,
        start_timeout=int(config.start_timeout_s),
        use_gloo=True,
        env={**os.environ, **_horovod_env(config)},
        verbose=0,
    )
    return outcomes[0]


def _horovod_env(config: TrainConfig) -> dict[str, str]:
    return {
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(config.stall_s)),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(int(config.stall_s / 2)),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(int(config.stall_s)),
    }


def _torch(config: TrainConfig, spark: SparkSession) -> Outcome:
    from pyspark.ml.torch.distributor import TorchDistributor

    from spark_ner.train import run

    distributor = TorchDistributor(
        num_processes=config.processes, local_mode=False, use_gpu=bool(_gpus(spark))
    )
    return cast(Outcome, distributor.run(run.run_rank, config))


def _gpus(spark: SparkSession) -> float:
    return float(spark.sparkContext.getConf().get("spark.task.resource.gpu.amount", "0"))


def _own_error(error: BaseException) -> SparkNerError | None:
    """The error of this package inside a launcher's, where starting again would only meet it again."""
    return None


def _tail(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


_START: Mapping[str, Callable[[TrainConfig, SparkSession], Outcome]] = {"horovod": _horovod, "torch": _torch}
