"""Loss, learning and stopping, on a tiny BERT."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from spark_ner.train.align import TAGS
from spark_ner.train.corpora import TYPES, Corpus
from spark_ner.train.data import Labeled, Span
from spark_ner.train.evaluate import score
from spark_ner.train.texts import MixConfig
from tests.fixtures.marks import with_torch

pytestmark = with_torch
CORPUS = Corpus(name="ten", files=(), labels={})
NAMES = [("Ada", "PER"), ("Novak", "PER"), ("Oslo", "LOC"), ("Rome", "LOC"), ("Acme", "ORG")]


def setup_module() -> None:
    global torch, transformers, NonFiniteLossError, TrainConfig, parameter_groups, tag_loss, train, tagger
    import torch
    import transformers

    from spark_ner.train.loop import NonFiniteLossError, TrainConfig, parameter_groups, tag_loss, train
    from spark_ner.train.monitor import tagger


def ten_sentences() -> list[Labeled]:
    frames = ("{0} met {1}", "the works of {0} in {1}")
    pairs = [(a, b) for a, b in itertools.permutations(NAMES, 2)][:5]
    made = []
    for frame, (first, second) in itertools.product(frames, pairs):
        text = frame.format(first[0], second[0])
        spans = [Span(text.index(n), text.index(n) + len(n), label) for n, label in (first, second)]
        made.append(Labeled(text, tuple(spans)))
    return made


def tiny_bert(n_tokens: int = 200):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=n_tokens,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        type_vocab_size=6,
        num_labels=len(TAGS),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForTokenClassification(config)


def settings(**changes):
    mix = MixConfig(
        lower_share=0, upper_share=0, title_share=0, caseless_share=0, batch_tokens=512, longest_tokens=40
    )
    return TrainConfig(
        **{"learning_rate": 3e-3, "head_learning_rate": 3e-3, "threads": 1, "mix": mix, **changes}
    )


def test_ten_sentences_are_learnt_by_heart(tokenizer):
    sentences, model = ten_sentences(), tiny_bert()
    train(model, [(CORPUS, [tuple(sentences)])], tokenizer, config=settings(epochs=30))
    found = tagger(model, tokenizer)([s.text for s in sentences])
    assert score(found, sentences).overall.f1 == 100.0


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(tokenizer):
    weights = []
    for seed in (1, 1, 2):
        model = tiny_bert()
        train(model, [(CORPUS, [tuple(ten_sentences())])], tokenizer, config=settings(epochs=1, seed=seed))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_loss_of_unknown_types_equals_brute_force():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, len(TAGS))).astype(np.float32) * 3
    target = np.array([[0, 1, 0b110000001, 1 << 3], [0b11, 0, 1 << 8, 0]])
    losses = []
    for row, column in zip(*np.nonzero(target), strict=True):
        p = np.exp(logits[row, column]) / np.exp(logits[row, column]).sum()
        losses.append(-np.log(sum(p[i] for i in range(len(TAGS)) if target[row, column] >> i & 1)))
    got = tag_loss(torch.from_numpy(logits), torch.from_numpy(target)).item()
    assert got == pytest.approx(np.mean(losses), rel=1e-5)


def test_tokens_without_target_have_no_gradient():
    logits = torch.zeros(1, 3, len(TAGS), requires_grad=True)
    tag_loss(logits, torch.tensor([[0, 1, 0]])).backward()
    assert logits.grad is not None
    assert logits.grad[0, [0, 2]].abs().sum() == 0
    assert logits.grad[0, 1].abs().sum() > 0
    assert tag_loss(logits, torch.zeros(1, 3, dtype=torch.long)).item() == 0


def test_a_loss_that_is_no_number_stops_before_the_step_and_names_the_texts(tokenizer):
    model = tiny_bert()
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    with pytest.raises(NonFiniteLossError, match=r"epoch 0, texts ten:\d+"):
        train(model, [(CORPUS, [tuple(ten_sentences())])], tokenizer, config=settings(epochs=1))
    assert torch.equal(before, model.bert.embeddings.word_embeddings.weight)


def test_head_and_type_rows_learn_faster_and_lower_layers_slower():
    model = tiny_bert()
    rates = {}
    for group in parameter_groups(
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
    code = "from spark_ner.train.align import TAGS; print(*TAGS)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["O", *(f"{p}-{t}" for t in TYPES for p in "BI")]
