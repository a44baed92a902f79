"""`python -m spark_ner.train.default` (`make model`): the embedded model, from open sets to bundle.

Trains, exports to ONNX, quantizes, measures fp32 and INT8 on the five test sets, and writes bundle and
model card.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spark_ner import __version__
from spark_ner.bundle import Variant, publish
from spark_ner.config import apply_sets, from_dict, load_toml
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.errors import SparkNerError, UserError
from spark_ner.labels import iob2_tags
from spark_ner.train.corpora import TRAINING, TYPES
from spark_ner.train.evaluate import GoldSet, Report, evaluate, gold_sets, table
from spark_ner.train.settings import TrainConfig
from spark_ner.train.shards import Shards

if TYPE_CHECKING:
    from spark_ner.compress.quantize import Feed, QuantizeConfig
    from spark_ner.engine.engine import Engine

log = logging.getLogger(__name__)

BUNDLE = Path(__file__).parents[1] / "bundle" / "models" / "default"
MAX_TOKENS = 512
# 96 with the special tokens, a bucket: long windows cost more in attention than they gain (docs/models.md).
WINDOW_TOKENS, OVERLAP_TOKENS = 94, 8
_N_CALIBRATION = 256
_UNITS = {"sentence": "", "document": "-by-document", "one-line document": "-by-one-line-document"}

TAGS = iob2_tags(TYPES)


@dataclass(frozen=True)
class Measured:
    """Reports of one variant by set and unit, and its speed on one thread."""

    reports: dict[str, dict[str, Report]]
    words_per_s: float

    def f1(self) -> dict[str, float]:
        """For the manifest: strict F1 by set, with `-by-…` after it where whole documents were given."""
        return {
            f"{name}{_UNITS[unit]}": round(report.overall.f1, 2)
            for name, units in self.reports.items()
            for unit, report in units.items()
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and build; 0 done, 2 the user's error, 1 anything else."""
    parser = argparse.ArgumentParser(prog="python -m spark_ner.train.default", description=__doc__)
    parser.add_argument("--config", type=Path, help="TOML file with the training's settings")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    parser.add_argument("--data", type=Path, help="folder of the corpora (default: ../shared/data)")
    parser.add_argument(
        "--work", type=Path, default=Path(".work/model"), help="folder for what is not shipped"
    )
    parser.add_argument("--trained", type=Path, help="skip the training: a directory that it wrote before")
    parser.add_argument("--output", type=Path, default=BUNDLE, help="bundle directory")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        tree = apply_sets(load_toml(options.config) if options.config else {}, options.settings)
        config = from_dict(TrainConfig, tree)
        if options.data:
            config = replace(config, root=str(options.data))
        build(config, work=options.work, output=options.output, trained=options.trained)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SparkNerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(config: TrainConfig, *, work: Path, output: Path, trained: Path | None = None) -> None:
    """Everything from corpora to bundle; `trained` skips the training."""
    from spark_ner.compress.export import export_onnx
    from spark_ner.train.card import card
    from spark_ner.train.launch import launch
    from spark_ner.train.run import deliver, locked, prepare, run_rank

    began = time.monotonic()
    config = replace(config, output=str(work.absolute()), data=TRAINING, labels=TYPES)
    with locked(work):
        shards = prepare(config)
        if trained is None:
            outcome = launch(config, run_rank)
            directory = deliver(config, shards, best_epoch=int(outcome["best_epoch"])).path
        else:
            directory = trained
    export_onnx(directory, work / "fp32.onnx")
    log.info("exported after %.0f s", time.monotonic() - began)
    calibration, dev = calibration_windows(config, shards)
    chosen = quantize_best(work, calibration=calibration, dev=dev, threads=config.threads)
    gold = gold_sets(config.root)
    measured = {}
    for name in ("fp32", "int8"):
        measured[name] = measure(stage(work, directory, name), gold)
        log.info("%s\n%s", name, table(measured[name].reports))
    int8 = Variant(
        runtime="onnx",
        precision="int8",
        files=("model.int8.onnx",),
        f1=measured["int8"].f1(),
        words_per_s=round(measured["int8"].words_per_s),
    )
    publish(
        output,
        name="default",
        version=__version__,
        labels=TAGS,
        max_tokens=MAX_TOKENS,
        variants={"int8": int8},
        sources={"model.int8.onnx": work / "int8.onnx", "tokenizer.json": directory / "tokenizer.json"},
        token_feature="letter_case",
        window_tokens=WINDOW_TOKENS,
        overlap_tokens=OVERLAP_TOKENS,
    )
    seconds = time.monotonic() - began
    minutes = None if trained else seconds / 60  # of the whole, or not known
    (output / "README.md").write_text(
        card(config, measured, quantization=chosen, minutes=minutes), encoding="utf-8"
    )
    log.info("wrote %s after %.0f s", output, seconds)


def calibration_windows(config: TrainConfig, shards: Shards) -> tuple[list[Feed], list[Feed]]:
    """Unpadded windows of training text, lengths mixed as in training: to calibrate on, and to compare on."""
    feeds: list[Feed] = []
    for rows in shards.epoch(0, seed=config.seed, batch_tokens=config.batch_tokens):
        batch = shards.read(rows[len(feeds) % len(rows)][None])
        names = ("input_ids", "attention_mask", "token_type_ids")
        feeds.append({name: np.ascontiguousarray(getattr(batch, name)) for name in names})
        if len(feeds) == 2 * _N_CALIBRATION:
            break
    return feeds[::2], feeds[1::2]


def quantize_best(
    work: Path, *, calibration: Sequence[Feed], dev: Sequence[Feed], threads: int
) -> QuantizeConfig:
    """Write `int8.onnx` by the way of choosing ranges whose logits on held-out text are nearest to fp32's."""
    from spark_ner.compress.quantize import (
        METHODS,
        QuantizeConfig,
        measure_activations,
        quantize,
        rms_difference,
    )

    fp32, candidate = work / "fp32.onnx", work / "candidate.onnx"
    activations = measure_activations(fp32, calibration, threads=threads)
    distances: dict[float, QuantizeConfig] = {}
    for method in METHODS:
        config = QuantizeConfig(method=method)
        quantize(fp32, candidate, activations=activations, config=config)
        distance = rms_difference(fp32, candidate, dev, threads=threads)
        log.info("ranges by %s: logits differ by %.4f (root mean square)", method, distance)
        if distance < min(distances, default=np.inf):
            candidate.replace(work / "int8.onnx")
        distances[distance] = config
    return distances[min(distances)]


def stage(work: Path, directory: Path, name: str) -> Engine:
    """An engine on `<work>/<name>.onnx`, as a bundle of its own beside it."""
    folder = work / f"bundle-{name}"
    publish(
        folder,
        name=name,
        version=__version__,
        labels=TAGS,
        max_tokens=MAX_TOKENS,
        variants={name: Variant(runtime="onnx", precision=name, files=("model.onnx",))},
        sources={"model.onnx": work / f"{name}.onnx", "tokenizer.json": directory / "tokenizer.json"},
        token_feature="letter_case",
        window_tokens=WINDOW_TOKENS,
        overlap_tokens=OVERLAP_TOKENS,
    )
    return load_engine(folder, spec=EngineSpec(threads=1))


def measure(engine: Engine, gold: Sequence[GoldSet]) -> Measured:
    """F1 of an engine on the test sets, and its words a second over all of them."""
    began = time.perf_counter()
    reports = evaluate(engine.annotate, gold)
    return Measured(reports, engine.stats.words / (time.perf_counter() - began))


if __name__ == "__main__":
    sys.exit(main())
