"""A BERT tagger's safetensors to one fused fp32 ONNX graph with dynamic axes, checked against PyTorch.

The graph is written operator by operator: a tracer's output has to be recognised by fusions that change from
one version of ONNX Runtime or transformers to the next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spark_ner.errors import BundleError, DependencyError, SparkNerError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

log = logging.getLogger(__name__)

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "logits"
PROJECTIONS = ("query", "key", "value")
MAX_DIFFERENCE = 1e-3  # of a logit; rounding in another order gives about 1e-5
_OPSET, _IR_VERSION = 17, 8  # read by ONNX Runtime 1.17 and later
_CONTRIB = "com.microsoft"
# transformers' name -> operator of ONNX Runtime and its attributes
_ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "gelu": ("Gelu", {}),
    "quick_gelu": ("QuickGelu", {"alpha": 1.702}),
}
_EXPORTABLE = {
    "model_type": ("bert",),
    "hidden_act": tuple(_ACTIVATIONS),
    "position_embedding_type": ("absolute",),
}

Array = NDArray[np.float32]


class ExportError(SparkNerError, ValueError):
    """When the exported graph does not compute what the model computes."""


def export_onnx(directory: Path, target: Path) -> float:
    """Export a Hugging Face BERT tagger to a fused ONNX file; returns the largest difference of a logit.

    Inputs are int64 (n_windows, n_tokens), the output is float32 (n_windows, n_tokens, n_labels).

    Raises:
        DependencyError: torch, transformers or onnx is missing.
        BundleError: the model is no BERT with absolute positions and GELU or QuickGELU.
        ExportError: the graph's logits differ from PyTorch's.
    """
    try:
        import onnx
        import transformers  # noqa: F401
        from safetensors.numpy import load_file
    except ImportError as error:
        raise DependencyError(f"export needs {error.name}: pip install 'spark-ner[train]'") from None

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for key, values in _EXPORTABLE.items():
        if (value := config.get(key, values[0])) not in values:
            known = " or ".join(map(repr, values))
            raise BundleError(f"{directory}: {key} is {value!r}, only {known} can be exported")
    graph = _Graph(
        {k.removeprefix("bert."): v for k, v in load_file(directory / "model.safetensors").items()}
    )
    graph.bert(
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        eps=config["layer_norm_eps"],
        activation=config.get("hidden_act", "gelu"),
    )
    onnx.save(graph.model(), str(target))
    difference = largest_difference(directory, target)
    log.info("exported %s: largest difference of a logit %.1e", target.name, difference)
    if not difference < MAX_DIFFERENCE:
        raise ExportError(f"{target} differs from PyTorch by {difference:.1e}, more than {MAX_DIFFERENCE}")
    return difference


class _Graph:
    """Nodes and constants in the making; each method appends operators and returns their output's name."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, NDArray[np.generic]] = {}

    def bert(self, *, n_layers: int, n_heads: int, eps: float, activation: str) -> None:
        """Embeddings, encoder layers and head, from the three inputs to the logits."""
        self._n_heads, self._eps, self._activation = n_heads, eps, activation
        mask = self._node("Cast", ["attention_mask"], "mask", to=6)  # int32
        x = self._embeddings()
        for layer in range(n_layers):
            x = self._layer(x, f"encoder.layer.{layer}", mask)
        head = self._node("MatMul", [x, self._matrix("classifier")], "head")
        self._node("Add", [head, self._vector("classifier.bias")], OUTPUT)

    def _embeddings(self) -> str:
        word = self._node("Gather", [self._vector("embeddings.word_embeddings.weight"), "input_ids"], "words")
        kind = self._node(
            "Gather", [self._vector("embeddings.token_type_embeddings.weight"), "token_type_ids"], "kinds"
        )
        n_tokens = self._node("Shape", ["input_ids"], "n_tokens", start=1, end=2)
        bounds = [self._constant(name, np.array([value])) for name, value in (("zero", 0), ("axis", 0))]
        table = self._vector("embeddings.position_embeddings.weight")
        position = self._node("Slice", [table, bounds[0], n_tokens, bounds[1]], "positions")
        norm = [self._vector(f"embeddings.LayerNorm.{part}") for part in ("weight", "bias")]
        # Of the sum of both; ONNX Runtime's plain LayerNormalization took four times as long on CPU.
        inputs = [self._node("Add", [word, kind], "words_kinds"), position, *norm]
        return self._node("SkipLayerNormalization", inputs, "embeddings", contrib=True, epsilon=self._eps)

    def _layer(self, x: str, name: str, mask: str) -> str:
        joint = [self._joint(f"{name}.attention.self", part) for part in ("weight", "bias")]
        heads = self._node(
            "Attention", [x, *joint, mask], f"{name}.heads", contrib=True, num_heads=self._n_heads
        )
        dense = self._node(
            "MatMul", [heads, self._matrix(f"{name}.attention.output.dense")], f"{name}.attention.projected"
        )
        x = self._add_and_norm(dense, x, f"{name}.attention.output")
        return self._add_and_norm(self._feed_forward(x, name), x, f"{name}.output")

    def _feed_forward(self, x: str, name: str) -> str:
        """Both feed-forward layers, the second one's bias left for the norm.

        The first is a Gemm, which takes two dimensions: its integer form adds the bias and rounds at once, so
        that in INT8, with QuickGELU, the layer's widest tensor is never there in fp32.
        """
        up = self._matrix(f"{name}.intermediate.dense")
        width = self._constant("rows", np.array([-1, self._constants[up].shape[0]]))
        rows = self._node("Reshape", [x, width], f"{name}.rows")
        bias = self._vector(f"{name}.intermediate.dense.bias")
        inner = self._node("Gemm", [rows, up, bias], f"{name}.inner")
        kind, attributes = _ACTIVATIONS[self._activation]
        inner = self._node(kind, [inner], f"{name}.gelu", contrib=True, **attributes)
        outer = self._node("MatMul", [inner, self._matrix(f"{name}.output.dense")], f"{name}.outer_rows")
        return self._node("Reshape", [outer, self._node("Shape", [x], f"{name}.shape")], f"{name}.outer")

    def _add_and_norm(self, dense: str, residual: str, name: str) -> str:
        """Bias, residual connection and layer norm, as in BERT's two `output` blocks."""
        parts = [f"{name}.LayerNorm.weight", f"{name}.LayerNorm.bias", f"{name}.dense.bias"]
        inputs = [dense, residual, *(self._vector(part) for part in parts)]
        return self._node("SkipLayerNormalization", inputs, name, contrib=True, epsilon=self._eps)

    def _matrix(self, name: str) -> str:
        """A dense layer's weights, turned for MatMul: (n_in, n_out)."""
        return self._constant(f"{name}.weight", np.ascontiguousarray(self._weights[f"{name}.weight"].T))

    def _joint(self, name: str, part: str) -> str:
        """Q, K and V side by side, as Attention takes them: (n_in, 3 n_out) weights, (3 n_out,) biases."""
        three = [self._weights[f"{name}.{kind}.{part}"].T for kind in PROJECTIONS]
        return self._constant(f"{name}.{part}", np.concatenate(three, axis=-1))

    def _vector(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _constant(self, name: str, value: NDArray[np.generic]) -> str:
        self._constants[name] = value
        return name

    def _node(
        self, kind: str, inputs: list[str], output: str, *, contrib: bool = False, **attributes: int | float
    ) -> str:
        from onnx.helper import make_attribute, make_node

        node = make_node(kind, inputs, [output], f"{output}.{kind}", domain=_CONTRIB if contrib else "")
        node.attribute.extend(make_attribute(name, value) for name, value in attributes.items())
        self._nodes.append(node)
        return output

    def model(self) -> ModelProto:
        """The finished ONNX model."""
        from onnx import TensorProto, helper, numpy_helper

        n_labels = len(self._weights["classifier.bias"])
        axes = ["windows", "tokens"]
        return helper.make_model(
            helper.make_graph(
                self._nodes,
                "tagger",
                [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in INPUTS],
                [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [*axes, n_labels])],
                [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)],
            ir_version=_IR_VERSION,
            producer_name="spark_ner",
        )


def largest_difference(directory: Path, graph: Path) -> float:
    """Largest difference of a logit from PyTorch on unpadded positions, over three shapes."""
    import onnxruntime
    import torch
    from transformers import BertForTokenClassification

    model = BertForTokenClassification.from_pretrained(directory)
    model.eval()  # type: ignore[no-untyped-call]
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    worst = 0.0
    for n_windows, n_tokens in ((1, 5), (3, 32), (2, 200)):
        lengths = rng.integers(2, n_tokens + 1, (n_windows, 1))
        mask = (np.arange(n_tokens) < lengths).astype(np.int64)
        feed = {
            "input_ids": rng.integers(0, model.config.vocab_size, mask.shape) * mask,
            "attention_mask": mask,
            "token_type_ids": rng.integers(0, model.config.type_vocab_size, mask.shape) * mask,
        }
        with torch.inference_mode():
            wanted = model(**{k: torch.from_numpy(v) for k, v in feed.items()}).logits.numpy()
        (got,) = session.run([OUTPUT], feed)
        worst = max(worst, float(np.abs(got - wanted)[mask > 0].max()))
    return worst
