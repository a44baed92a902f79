"""A shipped INT8 bundle back to a fp32 Hugging Face directory: the same weights, rounded, to compare with.

Only what `export` and `quantize` write can be read back: they keep the parameters' Hugging Face names.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spark_ner.bundle.load import open_bundle
from spark_ner.compress.export import PROJECTIONS
from spark_ner.errors import BundleError, DependencyError

_POSITIONS = "embeddings.position_embeddings.weight"


def restore_torch(model: str | Path, directory: Path) -> None:
    """Write config.json, model.safetensors and tokenizer.json of a bundle's ONNX variant into a directory.

    Raises:
        DependencyError: onnx or safetensors is missing.
        BundleError: the graph was not written by this package.
    """
    try:
        import onnx
        from onnx import numpy_helper
        from safetensors.numpy import save_file
    except ImportError as error:
        raise DependencyError(f"restoring needs {error.name}: pip install 'spark-ner[train]'") from None
    bundle = open_bundle(model)
    _, variant = bundle.choose(runtime="onnx")
    graph = onnx.load(str(bundle.file(variant.files[0]))).graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    kinds = {n.op_type for n in graph.node}
    heads = [
        a.i
        for n in graph.node
        if n.op_type in ("Attention", "QAttention")
        for a in n.attribute
        if a.name == "num_heads"
    ]
    if not heads or _POSITIONS not in constants:
        raise BundleError(f"{bundle.path}: the graph does not carry a BERT tagger's parameter names")
    weights = _parameters(constants, n_layers=len(heads))
    directory.mkdir(parents=True, exist_ok=True)
    named = {
        k if k.startswith("classifier") else f"bert.{k}": np.ascontiguousarray(v) for k, v in weights.items()
    }
    save_file(named, directory / "model.safetensors", metadata={"format": "pt"})
    config = _config(weights, n_layers=len(heads), n_heads=int(heads[0]), labels=bundle.manifest.labels)
    config["hidden_act"] = "quick_gelu" if {"Sigmoid", "QuickGelu"} & kinds else "gelu"
    config["spark_ner_token_feature"] = bundle.manifest.token_feature
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(bundle.file(bundle.manifest.tokenizer), directory / "tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": bundle.manifest.max_tokens}
    special = {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings | special) + "\n", encoding="utf-8")


def _parameters(
    constants: dict[str, NDArray[np.generic]], *, n_layers: int
) -> dict[str, NDArray[np.float32]]:
    """Hugging Face parameters by name: integers times scales, matrices turned, joint projections split."""
    weights: dict[str, NDArray[np.float32]] = {}
    for name, value in constants.items():
        if name.endswith((".weight_q", ".bias_q")):
            base = name.removesuffix("_q")
            weights[base] = value.astype(np.float32) * constants[f"{base}_scale"].astype(np.float32)
        elif name.endswith((".weight", ".bias")):
            weights[name] = np.asarray(value, np.float32)
    for name in list(weights):
        if name.endswith(".weight") and weights[name].ndim == 2 and not name.startswith("embeddings."):
            weights[name] = weights[name].T
    for layer in range(n_layers):
        prefix = f"encoder.layer.{layer}.attention.self"
        for part in ("weight", "bias"):
            three = np.split(weights.pop(f"{prefix}.{part}"), len(PROJECTIONS))
            weights |= {f"{prefix}.{kind}.{part}": p for kind, p in zip(PROJECTIONS, three, strict=True)}
    return weights


def _config(
    weights: dict[str, NDArray[np.float32]], *, n_layers: int, n_heads: int, labels: tuple[str, ...]
) -> dict[str, object]:
    n_words, hidden = weights["embeddings.word_embeddings.weight"].shape
    return {
        "architectures": ["BertForTokenClassification"],
        "model_type": "bert",
        "vocab_size": n_words,
        "hidden_size": hidden,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "intermediate_size": weights["encoder.layer.0.intermediate.dense.bias"].shape[0],
        "max_position_embeddings": weights[_POSITIONS].shape[0],
        "type_vocab_size": weights["embeddings.token_type_embeddings.weight"].shape[0],
        "id2label": dict(enumerate(labels)),
        "label2id": {tag: i for i, tag in enumerate(labels)},
    }
