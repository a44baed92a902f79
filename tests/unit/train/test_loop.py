"""Loss, learning and stopping, on a tiny BERT."""

import contextlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from spark_ner.train.align import Targets
from spark_ner.train.corpora import TYPES, Corpus
from spark_ner.train.data import Labeled, Span
from spark_ner.train.evaluate import score
from spark_ner.train.shards import About, write
from spark_ner.train.texts import MixConfig
from tests.fixtures.marks import with_torch

pytestmark = with_torch
TARGETS = Targets(TYPES, [frozenset({"PER", "ORG", "LOC"})])
TAGS = TARGETS.scheme.tags
CORPUS = Corpus(name="ten", files=(), labels={})
NAMES = [("Ada", "PER"), ("Novak", "PER"), ("Oslo", "LOC"), ("Rome", "LOC"), ("Acme", "ORG")]


def setup_module() -> None:
    global torch, transformers, checkpoint, loop, objective, tagger, TrainConfig, variants, Checkpoints
    import torch
    import transformers

    from spark_ner.train import checkpoint, loop, objective
    from spark_ner.train.checkpoint import Checkpoints
    from spark_ner.train.monitor import tagger
    from spark_ner.train.run import variants
    from spark_ner.train.settings import TrainConfig


@pytest.fixture
def made(tokenizer, tmp_path):
    """Shards of the ten sentences."""

    def make(config):
        folder = tmp_path / f"shards-{config.epochs}-{config.seed}"
        about = About(
            fingerprint="",
            types=TYPES,
            allowed=tuple(map(tuple, TARGETS.allowed.astype(int).tolist())),
            pad_id=tokenizer.pad_id,
        )
        sets = [(CORPUS, [tuple(ten_sentences())])]
        return write(folder, variants(config, sets, tokenizer, TARGETS), about=about)

    return make


def ten_sentences() -> list[Labeled]:
    frames = ("{0} met {1}", "the works of {0} in {1}")
    pairs = [(a, b) for a, b in itertools.permutations(NAMES, 2)][:5]
    made = []
    for frame, (first, second) in itertools.product(frames, pairs):
        text = frame.format(first[0], second[0])
        spans = [Span(text.index(n), text.index(n) + len(n), label) for n, label in (first, second)]
        made.append(Labeled(text, tuple(spans)))
    return made


def tiny_bert(n_tokens: int = 200, dropout: float = 0.0):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=n_tokens,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        type_vocab_size=6,
        num_labels=len(TAGS),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForTokenClassification(config)


def settings(batch_tokens=512, **changes):
    never = dict.fromkeys(("lower_share", "upper_share", "title_share", "caseless_share"), 0.0)
    mix = MixConfig(**never, longest_tokens=40)
    return TrainConfig(
        **{
            "learning_rate": 3e-3,
            "head_learning_rate": 3e-3,
            "threads": 1,
            "labels": TYPES,
            "batch_tokens": batch_tokens,
            "mix": mix,
            **changes,
        }
    )


def task(model, shards, score=None):
    return loop.Task(model, shards, objective.TagObjective(torch.from_numpy(shards.allowed)), score)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_ten_sentences_are_learnt_by_heart(tokenizer, made):
    sentences, model, config = ten_sentences(), tiny_bert(), settings(epochs=30)
    loop.train(task(model, made(config)), config=config)
    found = tagger(model, tokenizer, TARGETS.scheme)([s.text for s in sentences])
    assert score(found, sentences).overall.f1 == 100.0


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(made):
    found = []
    for seed in (1, 1, 2):
        model, config = tiny_bert(), settings(epochs=1, seed=seed)
        loop.train(task(model, made(config)), config=config)
        found.append(weights(model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("loader_processes", [0, 2])
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(made, tmp_path, loader_processes):
    """Dropout, the order of the texts, the optimizer's state: all of it goes on where it was (case C59)."""
    config = settings(48, epochs=6, checkpoint_steps=2, loader_processes=loader_processes)
    shards = made(config)

    def run(folder, stop_after=None):
        model = tiny_bert(dropout=0.2)
        torch.manual_seed(99)  # a new process has another generator state
        seen = []

        class Stopping(loop.Meter):
            def step(self, step, n_steps, **figures):
                seen.append((step, figures["loss"]))
                if step == stop_after:
                    raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            loop.train(task(model, shards), config=config, checkpoints=Checkpoints(folder), meter=Stopping())
        return weights(model), seen

    whole, steps = run(tmp_path / "a")
    assert len(steps) >= 12
    _, first = run(tmp_path / "b", stop_after=7)
    again, second = run(tmp_path / "b")
    assert (len(first), second[0][0]) == (7, 7)  # the checkpoint is of step 6
    assert first[:6] + second == steps
    assert torch.equal(again, whole)


def test_accumulated_batches_are_one_step_of_their_targets(made):
    """Two half batches weigh by their numbers of targets, as one batch of both would."""
    config = settings(64, epochs=1, accumulation=3, clip_norm=1e9, warmup_share=0.0)
    shards, model = made(config), tiny_bert()
    run = loop._Run(task(model, shards), config, loop.Solo(), None, loop.Meter())
    run.optimizer = torch.optim.SGD([{"params": model.parameters(), "lr": 1.0, "full_lr": 1.0}])
    (batches, *_) = run.loader.steps(0)
    assert len({int((b.target != 0).sum()) for b in batches}) > 1
    before = weights(model)
    run.step(0, batches)
    moved = weights(model) - before
    reference = tiny_bert()
    losses, n = torch.zeros(()), 0
    for batch in batches:
        logits = reference(**objective.model_inputs(batch, torch.device("cpu"), letter_case=True)).logits
        loss, k = objective.tag_loss(logits, torch.from_numpy(batch.target), torch.from_numpy(shards.allowed))
        losses, n = losses + loss, n + k
    (losses / n).backward()
    gradient = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in reference.parameters()]
    )
    torch.testing.assert_close(moved, -gradient, atol=1e-6, rtol=1e-4)


def test_training_stops_when_dev_does_not_get_better(made):
    config, scores = settings(epochs=9, patience=2), iter([50.0, 60.0, 60.0, 59.0, 70.0])
    progress = loop.train(task(tiny_bert(), made(config), lambda: next(scores)), config=config)
    assert (progress.epoch, progress.best_epoch, progress.best_f1) == (4, 1, 60.0)


@pytest.mark.parametrize(("precision", "epochs"), [("bf16", 30), ("fp16", 60)])  # fp16 first finds its scale
def test_half_precision_learns_too(tokenizer, made, precision, epochs):
    sentences, model, config = ten_sentences(), tiny_bert(), settings(epochs=epochs, precision=precision)
    loop.train(task(model, made(config)), config=config)
    assert model.classifier.weight.dtype == torch.float32
    found = tagger(model, tokenizer, TARGETS.scheme)([s.text for s in sentences])
    assert score(found, sentences).overall.f1 > 90


def test_a_full_disk_costs_checkpoints_and_no_training(made, tmp_path, monkeypatch, caplog):
    """What cannot be written does not stop it; a later epoch is delivered."""
    config, scores = settings(64, epochs=3, checkpoint_steps=1), iter([90.0, 50.0, 60.0])
    folder, full = Checkpoints(tmp_path / "c"), [True] * 3
    write = checkpoint._write

    def writing(file, tensors):
        if full and full.pop():
            raise OSError(28, "No space left on device")
        return write(file, tensors)

    monkeypatch.setattr(checkpoint, "_write", writing)
    scored = task(tiny_bert(), made(config), lambda: next(scores))
    progress = loop.train(scored, config=config, checkpoints=folder)
    assert "no checkpoint at step 1: [Errno 28]" in caplog.text
    assert "epoch 1, the best so far, were not kept" in caplog.text
    assert (progress.epoch, progress.best_epoch, progress.best_f1) == (3, 2, 60.0)
    assert folder.best(2).is_file()
    assert folder.load()[0].step == progress.step


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_unknown_types_equals_brute_force(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, len(TAGS))).astype(np.float32) * 3
    unknown = len(TARGETS.allowed) - 1
    target = np.array([[0, 1, unknown, 4], [unknown, 0, 9, 0]])
    losses = []
    for row, column in zip(*np.nonzero(target), strict=True):
        p = np.exp(logits[row, column]) / np.exp(logits[row, column]).sum()
        right = -np.log(p[TARGETS.allowed[target[row, column]]].sum())
        losses.append((1 - smoothing) * right - smoothing * np.log(p).mean())
    got, n = objective.tag_loss(
        torch.from_numpy(logits),
        torch.from_numpy(target),
        torch.from_numpy(TARGETS.allowed),
        smoothing=smoothing,
    )
    assert n == 5
    assert got.item() == pytest.approx(np.sum(losses), rel=1e-5)


def test_tokens_without_target_have_no_gradient():
    allowed = torch.from_numpy(TARGETS.allowed)
    logits = torch.zeros(1, 3, len(TAGS), requires_grad=True)
    objective.tag_loss(logits, torch.tensor([[0, 1, 0]]), allowed)[0].backward()
    assert logits.grad is not None
    assert logits.grad[0, [0, 2]].abs().sum() == 0
    assert logits.grad[0, 1].abs().sum() > 0
    logits.grad = None
    loss, n = objective.tag_loss(logits, torch.zeros(1, 3, dtype=torch.long), allowed)
    loss.backward()
    assert (loss.item(), n, logits.grad.abs().sum()) == (0, 0, 0)


def test_a_loss_that_is_no_number_stops_before_the_step_and_names_the_texts(made):
    model, config = tiny_bert(), settings(epochs=1)
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    with pytest.raises(loop.NonFiniteLossError, match=r"epoch 0, texts ten:\d+"):
        loop.train(task(model, made(config)), config=config)
    assert torch.equal(before, model.bert.embeddings.word_embeddings.weight)


def test_head_and_type_rows_learn_faster_and_lower_layers_slower():
    model = tiny_bert()
    rates = {}
    for group in loop.parameter_groups(
        model, settings(learning_rate=1e-4, head_learning_rate=1e-3, layer_decay=0.5)
    ):
        rates.update({id(p): (group["lr"], group["weight_decay"]) for p in group["params"]})
    of = {name: rates[id(p)] for name, p in model.named_parameters()}
    assert of["classifier.weight"] == (1e-3, 0.01)
    assert of["bert.embeddings.token_type_embeddings.weight"] == (1e-3, 0.01)
    assert of["bert.encoder.layer.1.output.dense.weight"] == (1e-4, 0.01)
    assert of["bert.encoder.layer.0.output.dense.bias"] == (5e-5, 0.0)
    assert of["bert.embeddings.word_embeddings.weight"] == (2.5e-5, 0.01)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_label_ids_do_not_hang_on_the_hash_seed(seed):  # case C23
    code = "from spark_ner.train.default import TAGS; print(*TAGS)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["O", *(f"{p}-{t}" for t in TYPES for p in "BI")]
