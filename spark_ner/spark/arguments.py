"""The flags of `spark-ner annotate` and jobs/ner_batch.py, and the settings they make. Imports no pyspark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from spark_ner.config import apply_sets, from_dict, load_toml
from spark_ner.errors import ConfigError
from spark_ner.masking import mask_text, secrets_of
from spark_ner.spark.settings import JobConfig

_DESCRIPTION = """\
Named entities of a text column (or of text files) into a Delta table.

Only what is new since the last run is read, and each document is written exactly once: stop it at any point
and start it again. Settings come from --config FILE.toml, then flags, then --set; conf/job/ner_batch.toml has
them all.
"""
_EXIT_CODES = "exit codes: 0 done, 2 a fault of the call (settings, input, table), 1 anything else"


class Parser(argparse.ArgumentParser):
    """argparse whose error message repeats no secret."""

    def error(self, message: str) -> NoReturn:
        """One sentence and exit code 2."""
        masked = mask_text(message, secrets=secrets_of(sys.argv[1:]))
        self.exit(2, f"{self.prog}: error: {masked} (--help lists what there is)\n")


def annotate_parser(prog: str) -> Parser:
    """All flags of the job."""
    parser = Parser(
        prog=prog,
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_input(parser.add_argument_group("input"))
    _add_output(parser.add_argument_group("output"))
    _add_work(parser.add_argument_group("work"))
    _add_settings(parser.add_argument_group("settings and help"))
    return parser


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--input", metavar="PATH|TABLE", help="files, a folder, a pattern, or a Delta table")
    group.add_argument(
        "--format",
        choices=("auto", "parquet", "json", "csv", "text", "delta"),
        help="of the input; auto (the default) goes by file endings; json means JSON lines",
    )
    group.add_argument(
        "--text-unit", choices=("file", "line"), help="text files: one document a file (default) or a line"
    )
    group.add_argument("--text-col", metavar="COLUMN", help="the text (default: text)")
    group.add_argument(
        "--id-col", metavar="COLUMN", help="what identifies a document (default: its file and position)"
    )
    group.add_argument("--keep", metavar="A,B", help="columns to carry along, separated by commas")


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output", metavar="PATH|TABLE", help="Delta table to append to, made where absent")
    group.add_argument(
        "--runs-table", metavar="PATH|TABLE", help="figures of each micro-batch (default: OUTPUT_runs)"
    )
    group.add_argument(
        "--shape", choices=("nested", "exploded"), help="a row a document (default), or a row an entity"
    )
    group.add_argument(
        "--mode",
        choices=("incremental", "once"),
        help="only what is new (default), or all in one transaction keyed by --run-id",
    )
    group.add_argument(
        "--checkpoint", metavar="PATH", help="where the last run ended (default: OUTPUT_checkpoint)"
    )
    group.add_argument("--run-id", metavar="NAME", help="names the run; mode once writes one name once")
    group.add_argument(
        "--recover",
        action="store_true",
        default=None,
        help="the checkpoint is lost: leave out what the table has",
    )
    group.add_argument(
        "--show", metavar="N", type=int, default=0, help="print N entities of the table at the end"
    )


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model", metavar="NAME|DIR", help="shipped model, bundle, Hugging Face directory, or fake"
    )
    group.add_argument(
        "--task-seconds", metavar="S", type=float, help="what one Spark task should take (default: 120)"
    )
    group.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")


def _add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--config", metavar="FILE.toml", help="settings; flags and --set go before it")
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="sets",
        help="one setting, for example engine.batch_tokens=2048; may be repeated",
    )
    group.add_argument("--debug", action="store_true", help="stack traces, and Spark's own log")


_OWN = frozenset({"config", "sets", "debug", "dry_run", "show"})  # not settings of the job


def config_from(arguments: argparse.Namespace) -> JobConfig:
    """The job's settings: the file's, then flags, then `--set`.

    Raises:
        ConfigError: an unknown key (names the nearest valid one), a missing or an impossible value.
        PathError: no such config file.
    """
    tree = load_toml(arguments.config) if arguments.config else {}
    for name, value in vars(arguments).items():
        if value is None or name in _OWN:
            continue
        tree[name] = [part.strip() for part in value.split(",") if part.strip()] if name == "keep" else value
    tree = apply_sets(tree, arguments.sets)
    missing = [name for name in ("input", "output") if name not in tree]
    if missing:
        raise ConfigError(f"say where to read and write: --{' and --'.join(missing)} missing")
    return from_dict(JobConfig, tree, where="settings")


def parsed(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """The flags; exits with 2 where one is unknown."""
    return parser.parse_args(list(argv))
