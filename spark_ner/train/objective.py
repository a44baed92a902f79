"""What the loop minimizes: an objective turns the model and a batch into a sum of losses and a count.

The loss of a token is -log of the probability that the model gives to its right tags together: one tag
where the annotation is certain, O and MISC where a set does not mark MISC. Only first tokens of words carry
a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from spark_ner.train.texts import Batch


class Objective(Protocol):
    """A loss that adds up: over batches, over processes."""

    def __call__(self, model: nn.Module, batch: Batch, device: torch.device) -> tuple[torch.Tensor, int]:
        """Sum of the losses of the batch's targets, and their number; runs under the loop's autocast."""
        ...


@dataclass(frozen=True)
class TagObjective:
    """The tags of first tokens.

    Attributes:
        allowed: (n_targets, n_tags) booleans, the shards' table of right tags.
        letter_case: feed the batch's letter case as token types.
        smoothing: see `tag_loss`.
    """

    allowed: torch.Tensor
    letter_case: bool = True
    smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Batch, device: torch.device) -> tuple[torch.Tensor, int]:
        """Sum of `tag_loss` over the batch, and the number of its targets."""
        logits = model(**model_inputs(batch, device, letter_case=self.letter_case)).logits.float()
        target, allowed = torch.from_numpy(batch.target).to(device), self.allowed.to(device)
        return tag_loss(logits, target, allowed, smoothing=self.smoothing)


def tag_loss(
    logits: torch.Tensor, target: torch.Tensor, allowed: torch.Tensor, *, smoothing: float = 0.0
) -> tuple[torch.Tensor, int]:
    """Sum over the targets of -log p(right tags), and their number.

    Args:
        logits: (n_texts, n_tokens, n_tags).
        target: (n_texts, n_tokens) rows of `allowed`, 0 where there is no target.
        allowed: (n_targets, n_tags) booleans.
        smoothing: share of the loss that is the mean over all tags (Szegedy et al. 2016).
    """
    chosen = target != 0
    scores = logits[chosen].log_softmax(-1)
    right = scores.masked_fill(~allowed[target[chosen]], float("-inf")).logsumexp(-1)
    loss = -right.sum()
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * scores.mean(-1).sum()
    return loss + 0 * logits.sum(), len(scores)  # so that an empty batch has gradients, which are 0


def model_inputs(batch: Batch, device: torch.device, *, letter_case: bool) -> dict[str, torch.Tensor]:
    """The inputs of the model, (n_texts, n_tokens) each."""
    names = ("input_ids", "attention_mask", *(("token_type_ids",) if letter_case else ()))
    return {name: torch.from_numpy(getattr(batch, name)).to(device) for name in names}
