"""`spark-ner train`: from settings to a bundle. The same function is behind jobs/ner_train.py."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spark_ner.config import apply_sets, from_dict, load_toml
from spark_ner.errors import CheckpointError, ConfigError, DependencyError
from spark_ner.spark.arguments import Parser
from spark_ner.train.settings import TrainConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_ner.bundle import Bundle

_DESCRIPTION = """\
Train a tagger from labelled sets into OUTPUT/model, a bundle that `spark-ner annotate --model` takes.

Stopped at any point and started again it goes on from its last checkpoint. Settings come from
--config FILE.toml, then flags, then --set; conf/job/ner_train.toml has them all.
"""
_EXIT_CODES = "exit codes: 0 done, 2 a fault of the call (settings, data), 1 anything else"


def parser(prog: str) -> Parser:
    """The flags."""
    made = Parser(
        prog=prog,
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--config", metavar="FILE.toml", help="settings; flags and --set go before it")
    made.add_argument("--output", metavar="DIR", help="folder of the run, seen by every process")
    made.add_argument("--base", metavar="DIR|PACKAGE", help="encoder to start from")
    made.add_argument("--root", metavar="DIR", help="what the files of the sets are relative to")
    made.add_argument("--launcher", choices=("local", "horovod", "torch"), help="how processes are started")
    made.add_argument("--processes", metavar="N", type=int, help="that train together")
    made.add_argument(
        "--skip-bad-rows", action="store_true", default=None, help="leave out and list what cannot be read"
    )
    made.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="sets", help="one setting; repeatable"
    )
    how = made.add_mutually_exclusive_group()
    how.add_argument(
        "--resume", action="store_true", help="refuse to start where there is nothing to go on from"
    )
    how.add_argument("--fresh", action="store_true", help="remove what an earlier run left in the output")
    made.add_argument("--debug", action="store_true", help="stack traces, and Spark's own log")
    return made


def main(argv: Sequence[str]) -> int:
    """Parse, train, report; returns 0."""
    flags = parser("spark-ner train").parse_args(list(argv))
    logging.getLogger("spark_ner").setLevel(logging.INFO)
    config = config_from(flags)
    bundle = train(config, resume=flags.resume, fresh=flags.fresh, debug=flags.debug)
    print(f"model      {bundle.path}\nlabels     {', '.join(bundle.scheme.types)}")
    print(f"log        {Path(config.output) / 'log.jsonl'}")
    return 0


def config_from(flags: argparse.Namespace) -> TrainConfig:
    """The settings: the file's, then flags, then `--set`; ConfigError where they make no training."""
    tree = load_toml(flags.config) if flags.config else {}
    own = ("output", "base", "root", "launcher", "processes", "skip_bad_rows")
    tree.update({name: value for name in own if (value := getattr(flags, name)) is not None})
    config = from_dict(TrainConfig, apply_sets(tree, flags.sets), where="settings")
    if not config.output:
        raise ConfigError("say where to write: --output is missing")
    if not config.data:
        raise ConfigError("data: no set to train on; give at least one [[data]] section")
    return replace(config, output=str(Path(config.output).absolute()))


def train(config: TrainConfig, *, resume: bool = False, fresh: bool = False, debug: bool = False) -> Bundle:
    """Prepare, launch, deliver.

    Args:
        config: the settings.
        resume: CheckpointError where there is no checkpoint.
        fresh: remove what an earlier run left.
        debug: keep Spark's log.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise DependencyError("training needs torch and transformers: pip install 'spark-ner[train]'")
    from spark_ner.train.launch import launch
    from spark_ner.train.run import CHECKPOINTS, deliver, locked, prepare, run_rank

    output = Path(config.output)
    with locked(output):
        if fresh:
            for left in output.iterdir():
                if left.name != "run.lock":
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        if resume and not any((output / CHECKPOINTS).glob("step-*")):
            raise CheckpointError(f"{output} has no checkpoint to go on from")
        tables = any(corpus.format == "table" for corpus in (*config.data, *config.dev))
        needs_spark = tables or config.launcher != "local"
        with _session(delta=tables, debug=debug) if needs_spark else nullcontext() as spark:
            shards = prepare(config, spark=spark)
            outcome = launch(config, run_rank, spark=spark)
        print(f"steps      {outcome['step']:.0f}", file=sys.stderr)
        return deliver(config, shards, best_epoch=int(outcome["best_epoch"]))


@contextmanager
def _session(*, delta: bool, debug: bool) -> Iterator[SparkSession]:
    """The running session, or one of our own that ends with the training; `delta` if it must read tables."""
    if "pyspark" not in sys.modules and find_spec("pyspark") is None:
        raise DependencyError("this launcher needs pyspark: pip install 'spark-ner[spark]'")
    from pyspark.sql import SparkSession

    from spark_ner.spark.session import build_session, check_classic, check_environment

    running = SparkSession.getActiveSession() is not None
    spark = build_session("spark-ner train", delta=delta)
    try:
        check_classic(spark)
        if not debug:
            spark.sparkContext.setLogLevel("FATAL")  # errors are told in one sentence
        check_environment(spark, delta=delta)
        yield spark
    finally:
        if not running:
            spark.stop()
