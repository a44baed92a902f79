"""The `spark-ner` command. Each subcommand is one function that a job or another program may call too."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_ner import __version__
from spark_ner.config import nearest
from spark_ner.errors import DependencyError, UserError
from spark_ner.masking import MaskingFilter, mask_text, secrets_of

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from spark_ner.spark.settings import JobConfig

DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, 130

# Subcommand -> (what it does, module, function). A module is imported only when its command is called.
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "annotate": ("entities of documents into a Delta table", "spark_ner.cli", "annotate"),
    "train": ("a tagger from labelled sets, on one process or a cluster", "spark_ner.train.command", "main"),
    "models": ("the shipped models, or what a model directory holds", "spark_ner.bundle.command", "models"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code: 0 done, 2 the user's error, 1 anything else."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return DONE if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(f"spark-ner {__version__}")
        return DONE
    return guarded(lambda: _command(arguments[0])(arguments[1:]), arguments)


def guarded(work: Callable[[], int], arguments: Sequence[str]) -> int:
    """Turn what `work` raises into one sentence and an exit code; a trace only with `--debug`."""
    secrets, debug = secrets_of(arguments), "--debug" in arguments
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.addFilter(MaskingFilter(secrets))
    try:
        return work()
    except KeyboardInterrupt:
        print("interrupted; start it again and it goes on where it was", file=sys.stderr)
        return INTERRUPTED
    except UserError as error:
        _complain(f"spark-ner: {error}", secrets, debug=debug)
        return USER_ERROR
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever it is becomes exit code 1
        hint = "" if debug else " (--debug shows the trace)"
        _complain(
            f"spark-ner failed: {type(error).__name__}: {_first_line(error)}{hint}", secrets, debug=debug
        )
        return FAILED


def annotate(argv: Sequence[str]) -> int:
    """`spark-ner annotate`: parse, run, report. The same function is behind jobs/ner_batch.py."""
    from spark_ner.spark.arguments import annotate_parser, config_from, parsed

    flags = parsed(annotate_parser("spark-ner annotate"), argv)
    config = config_from(flags)
    with_spark = "pyspark" in sys.modules or importlib.util.find_spec("pyspark") is not None
    if not with_spark:
        raise DependencyError("pyspark is not installed: pip install 'spark-ner[spark]'")
    _check_model(config)
    return _annotate(config, flags)


def _check_model(config: JobConfig) -> None:
    """Refuse a model, or settings that it cannot follow, before a JVM is started for it."""
    from spark_ner.bundle import open_bundle
    from spark_ner.engine import load_engine
    from spark_ner.spark.ship import check_fit

    if config.model == "fake":
        load_engine("fake", spec=config.engine)
    else:
        check_fit(open_bundle(config.model), config.engine)


def _annotate(config: JobConfig, flags: argparse.Namespace) -> int:
    from pyspark.sql import SparkSession

    from spark_ner.spark.session import build_session, check_classic, check_environment

    running = SparkSession.getActiveSession() is not None
    spark = build_session("spark-ner annotate")
    try:
        check_classic(spark)
        if not flags.debug:
            spark.sparkContext.setLogLevel("FATAL")  # errors are told here, in one sentence
            logging.getLogger("SQLQueryContextLogger").setLevel(
                logging.CRITICAL
            )  # pyspark's own echo of them
        check_environment(spark)
        return _run(spark, config, flags)
    finally:
        if not running:
            spark.stop()


def _run(spark: SparkSession, config: JobConfig, flags: argparse.Namespace) -> int:
    from spark_ner.sinks.delta import Table
    from spark_ner.spark.job import prepare, run
    from spark_ner.spark.microbatch import Hooks, id_column
    from spark_ner.spark.progress import Progress
    from spark_ner.spark.report import entity_lines, plan_lines

    if flags.dry_run:
        print("\n".join(plan_lines(spark, prepare(spark, config))))
        return DONE
    with Progress(spark, sys.stderr) as progress:
        report = run(spark, config, hooks=Hooks(on_row=progress.batch))
    if flags.show:
        rows = Table.parse(config.output).read(spark)
        lines = entity_lines(rows, id_col=id_column(config), shape=config.shape, limit=flags.show)
        print("\n".join(lines) + "\n")
    print(report)
    return DONE


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name not in COMMANDS:
        raise UserError(f"no command {name!r}{nearest(name, COMMANDS)}")
    _, module, function = COMMANDS[name]
    command: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), function)
    return command


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {what}" for name, (what, _, _) in COMMANDS.items()]
    head = "usage: spark-ner COMMAND [flags]      (spark-ner COMMAND --help lists a command's flags)"
    return "\n".join([head, "", *lines, "", "  --version   the installed version"])


def _complain(message: str, secrets: Sequence[str], *, debug: bool) -> None:
    if debug:
        print(mask_text(traceback.format_exc(), secrets=secrets), file=sys.stderr)
    print(mask_text(message, secrets=secrets), file=sys.stderr)


def _first_line(error: BaseException) -> str:
    # JVM messages go on for pages. No line is cut inside, so masking, which comes after, still sees whole
    # secrets.
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


if __name__ == "__main__":
    sys.exit(main())
