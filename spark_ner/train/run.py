"""One training run from labelled sets to a bundle: prepare, train on every process, deliver.

The run's folder (`output`) holds all that passes between the three and survives a kill: `tokenizer.json`,
`shards/`, `dev.jsonl`, `checkpoints/`, `log.jsonl`, and in the end `model/` (a Hugging Face directory and
bundle in one). It has to be seen by every process under the same path.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spark_ner.config import nearest
from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import CheckpointError, ConfigError, TrainingDataError
from spark_ner.labels import LabelScheme
from spark_ner.train.align import Targets
from spark_ner.train.corpus import BadRows, Corpus, label_types, load
from spark_ner.train.data import Document, Labeled, Span
from spark_ner.train.evaluate import Score, score
from spark_ner.train.model import base_directory, tokenizer_of
from spark_ner.train.settings import TrainConfig
from spark_ner.train.shards import About, Shards, write
from spark_ner.train.tables import load_table
from spark_ner.train.texts import Example, compose, examples, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from transformers import PreTrainedModel

    from spark_ner.bundle import Bundle
    from spark_ner.train.distributed import Group

log = logging.getLogger(__name__)

SHARDS, DEV, TOKENIZER, MODEL, LOG = "shards", "dev.jsonl", "tokenizer.json", "model", "log.jsonl"
CHECKPOINTS = "checkpoints"
Sets = Sequence[tuple[Corpus, Sequence[Document]]]

# Settings that change no weight, or none beyond the order of sums: a run may go on under others.
_FREE = frozenset(
    {
        "output",
        "root",
        "launcher",
        "processes",
        "accumulation",
        "threads",
        "loader_processes",
        "checkpoint_steps",
        "keep_checkpoints",
        "max_restarts",
        "start_timeout_s",
        "stall_s",
        "trackers",
        "skip_bad_rows",
        "compression",
        "shard",
        "tensor_parallel",
    }
)


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """The run's folder for this process alone; CheckpointError where another run has it."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / "run.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CheckpointError(
                f"another run is writing to {output}: give it another output folder"
            ) from None
        yield


def prepare(config: TrainConfig, *, spark: SparkSession | None = None) -> Shards:
    """Read the sets, tokenize them into shards; nothing is done again that a run before has done.

    `spark` is needed where a set is in a table.

    Raises:
        TrainingDataError: names file and line of what cannot be read.
        ConfigError: there is nothing to train on, or a label is not among `config.labels`.
    """
    output = Path(config.output)
    bad = BadRows() if config.skip_bad_rows else None
    sets, dev = read(config, spark=spark, bad=bad)
    types = config.labels or label_types([documents for _, documents in sets])
    _check_labels(sets, types)
    if bad:
        log.warning("%d bad rows were left out; the first: %s", len(bad), bad.listed[:3])
    base = base_directory(config.base)
    rust = tokenizer_of(base, line_breaks=config.line_breaks)
    fingerprint = _fingerprint(config, sets, types, rust.to_str())
    try:
        there = Shards(output / SHARDS)
        if there.about.fingerprint == fingerprint and (output / DEV).is_file():
            log.info("shards are there: %d texts", sum(there.about.n_rows))
            return there
    except TrainingDataError:
        pass
    output.mkdir(parents=True, exist_ok=True)
    rust.save(str(output / TOKENIZER))
    _write_dev(output / DEV, dev)
    targets = Targets(types, [frozenset(c.annotates) for c, _ in sets if c.annotates])
    tokenizer = Tokenizer(rust)
    return write(
        output / SHARDS,
        variants(config, sets, tokenizer, targets),
        about=About(
            fingerprint=fingerprint,
            types=tuple(types),
            allowed=tuple(tuple(row) for row in targets.allowed.astype(int).tolist()),
            pad_id=tokenizer.pad_id,
        ),
    )


def read(
    config: TrainConfig, *, spark: SparkSession | None = None, bad: BadRows | None = None
) -> tuple[Sets, list[Labeled]]:
    """Training documents by set, and dev sentences."""

    def documents_of(corpus: Corpus) -> list[Document]:
        if corpus.format == "table" and spark is not None:
            return load_table(spark, corpus, bad=bad)
        return load(corpus, config.root, bad=bad)

    if not config.data:
        raise ConfigError("data: no set to train on; give at least one [[data]] section")
    loaded = [(c, documents_of(c)) for c in config.data]
    if config.dev:
        dev = [s for c in config.dev for d in documents_of(c) for s in d]
        return loaded, dev
    parts = [(c, *split(c, documents, config.mix.held_out)) for c, documents in loaded]
    return [(c, kept) for c, kept, _ in parts], [s for *_, out in parts for d in out for s in d]


def variants(
    config: TrainConfig, sets: Sets, tokenizer: Tokenizer, targets: Targets
) -> Iterator[Iterator[Example]]:
    """For each epoch its texts: joined and re-cased anew, in random order; the seed alone decides."""
    sizes = sentence_sizes(sets, tokenizer)
    for epoch in range(config.epochs):
        rng = np.random.default_rng([config.seed, epoch])
        made: list[Example] = []
        for corpus, documents in sets:
            texts = compose(corpus, documents, sizes, mix=config.mix, rng=rng)
            caseless = rng.random(len(texts)) < config.mix.caseless_share
            made.extend(examples(corpus, texts, tokenizer, targets=targets, caseless=caseless))
        yield (made[i] for i in rng.permutation(len(made)).tolist())


def sentence_sizes(sets: Sets, tokenizer: Tokenizer) -> dict[str, int]:
    """Tokens of each distinct sentence."""
    texts = list(dict.fromkeys(s.text for _, documents in sets for d in documents for s in d))
    return dict(zip(texts, np.diff(tokenizer.encode(texts).offsets).tolist(), strict=True))


def run_rank(config: TrainConfig) -> dict[str, float]:
    """What each process of a training does, in whatever way it was started; gives step and best dev F1."""
    import torch

    from spark_ner.train.checkpoint import Checkpoints
    from spark_ner.train.distributed import join
    from spark_ner.train.loop import Task, train
    from spark_ner.train.meter import Meter, trackers_of
    from spark_ner.train.objective import TagObjective
    from spark_ner.train.watchdog import Watchdog

    output = Path(config.output)
    shards = Shards(output / SHARDS)
    with Watchdog(config.stall_s) as watchdog:
        group = join(config)
        try:
            first = group.rank == 0
            meter = Meter(
                output / LOG if first else None,
                trackers=trackers_of(config.trackers, output) if first else (),
                bar=first and config.launcher == "local",
                beat=watchdog.beat,
            )
            model = start(config, shards)
            checkpoints = Checkpoints(
                output / CHECKPOINTS,
                fingerprint=_training_fingerprint(config, shards),
                keep=config.keep_checkpoints,
            )
            objective = TagObjective(
                torch.from_numpy(shards.allowed), config.letter_case, config.label_smoothing
            )
            task = Task(model, shards, objective, _dev_score(config, model, shards, group, watchdog.beat))
            progress = train(task, config=config, group=group, checkpoints=checkpoints, meter=meter)
            meter.close()
        finally:
            group.close()
    return {"step": progress.step, "best_f1": progress.best_f1, "best_epoch": progress.best_epoch}


def start(config: TrainConfig, shards: Shards) -> PreTrainedModel:
    """The model before its first step, the same in every process."""
    import tokenizers
    import torch

    from spark_ner.train.model import build

    torch.manual_seed(config.seed)
    return build(
        base_directory(config.base),
        tokenizers.Tokenizer.from_file(str(Path(config.output) / TOKENIZER)),
        tags=shards.tags,
        letter_case=config.letter_case,
        activation=config.activation,
        dropout=config.dropout,
    )


def deliver(config: TrainConfig, shards: Shards, *, best_epoch: int) -> Bundle:
    """Write the best epoch's weights as a Hugging Face directory that is a bundle, too."""
    import tokenizers
    from safetensors.torch import load_file

    from spark_ner import __version__
    from spark_ner.bundle import Variant, open_bundle, publish
    from spark_ner.train.checkpoint import Checkpoints
    from spark_ner.train.model import save

    output = Path(config.output)
    weights = Checkpoints(output / CHECKPOINTS).best(best_epoch)
    if not weights.is_file():
        raise CheckpointError(f"the weights of no epoch could be kept: {weights} is not there (a full disk?)")
    model = start(config, shards)
    model.load_state_dict(load_file(weights))
    rust = tokenizers.Tokenizer.from_file(str(output / TOKENIZER))
    save(model, rust, output / MODEL)
    found = open_bundle(output / MODEL).manifest
    files = ("config.json", "model.safetensors")
    return publish(
        output / MODEL,
        name=output.name,
        version=__version__,
        labels=shards.tags,
        max_tokens=found.max_tokens,
        token_feature=found.token_feature,
        variants={"fp32": Variant(runtime="torch", precision="float32", files=files)},
        sources={name: output / MODEL / name for name in (*files, TOKENIZER)},
    )


def read_dev(output: Path) -> list[Labeled]:
    """The dev texts of a prepared run."""
    rows = (json.loads(line) for line in (output / DEV).read_text(encoding="utf-8").splitlines())
    return [Labeled(row["text"], tuple(Span(*span) for span in row["spans"])) for row in rows]


def _dev_score(
    config: TrainConfig, model: PreTrainedModel, shards: Shards, group: Group, beat: Callable[[], None]
) -> Callable[[], float] | None:
    """Strict F1 on the dev texts, each process taking its share of them; None where there are none."""
    from spark_ner.train.monitor import tagger

    output = Path(config.output)
    dev = read_dev(output)[group.rank :: group.size]
    if not group.total([len(dev)])[0]:
        return None
    tokenizer = Tokenizer.from_file(output / TOKENIZER)
    scheme = LabelScheme.from_tags(shards.tags)
    tag = tagger(model, tokenizer, scheme, letter_case=config.letter_case, on_batch=beat)

    def score_dev() -> float:
        mine = score(tag([s.text for s in dev]), dev, types=scheme.types).overall if dev else Score(0, 0, 0)
        right, predicted, gold = group.total([mine.right, mine.predicted, mine.gold])
        return Score(int(right), int(predicted), int(gold)).f1

    return score_dev


def _write_dev(file: Path, dev: Iterable[Labeled]) -> None:
    aside = file.with_suffix(".part")
    with aside.open("w", encoding="utf-8") as out:
        for text in dev:
            spans = [[s.start, s.end, s.label] for s in text.spans]
            out.write(json.dumps({"text": text.text, "spans": spans}) + "\n")
    os.replace(aside, file)


def _check_labels(sets: Sets, types: Sequence[str]) -> None:
    for corpus, documents in sets:
        for label in label_types([documents]):
            if label not in types:
                raise ConfigError(
                    f"labels: set {corpus.name!r} has the label {label!r}{nearest(label, types)}; map it in "
                    "that set's labels"
                )


def _fingerprint(config: TrainConfig, sets: Sets, types: Sequence[str], tokenizer: str) -> str:
    """Of everything that the shards are made from."""
    digest = hashlib.sha256()
    for part in (list(types), asdict(config.mix), config.seed, config.epochs, tokenizer):
        digest.update(json.dumps(part).encode())
    for corpus, documents in sets:
        digest.update(repr((corpus.name, corpus.share, corpus.ordered, sorted(corpus.annotates))).encode())
        for document in documents:
            digest.update(repr(document).encode())
    return digest.hexdigest()


def _training_fingerprint(config: TrainConfig, shards: Shards) -> str:
    """Of everything that the weights depend on; `processes * accumulation` is one number here."""
    settings = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in _FREE}
    settings["batches_a_step"] = config.processes * config.accumulation // config.tensor_parallel
    for name in ("data", "dev", "mix"):
        settings.pop(name)  # the shards' fingerprint covers them
    return hashlib.sha256(
        (shards.about.fingerprint + json.dumps(settings, sort_keys=True)).encode()
    ).hexdigest()
