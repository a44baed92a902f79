"""Static INT8: every large product, QuickGELU and the word table, in standard ONNX operators (QDQ form).

Activation ranges are constants measured on calibration text: no range is taken at run time, where it would
span the rows of a batch and make an answer depend on its neighbours. MatMul outputs stay in fp32, so ONNX
Runtime fuses each `DequantizeLinear -> MatMul` into one integer product with a float result; the projections
of an Attention become integer products inside QAttention, what follows them there is fp32. A Gemm and the
QuickGELU after it, x * sigmoid(1.702 x) (Hendrycks & Gimpel 2016, arXiv 1606.08415), stay in integers: the
sigmoid of eight bits is a look-up in a table. GELU itself stays in fp32. Weights have a scale per output
column, the word table one per row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spark_ner.errors import BundleError, ConfigError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto
    from onnxruntime import InferenceSession

log = logging.getLogger(__name__)

RangeMethod = Literal["minmax", "percentile", "mse"]
METHODS: tuple[RangeMethod, ...] = get_args(RangeMethod)
Feed = Mapping[str, NDArray[np.int64]]  # one unpadded window

_BINS = 4_096
_GELU_FLOOR = -4.0  # below it QuickGELU is 0 to within half a step: the eight bits are for what lies above
_MIN_COLUMNS = 64  # a narrower MatMul (the head) stays in fp32: it costs nothing and decides the label
_FORBIDDEN = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")


@dataclass(frozen=True, kw_only=True)
class QuantizeConfig:
    """How ranges are chosen; `weight_bits` 7 rules out saturation on CPUs with AVX2 but no VNNI.

    There, two neighbouring products are added in 16 bits: 2 * 255 * 63 fits, 2 * 255 * 127 does not, and one
    bundle would answer differently from node to node.
    """

    method: RangeMethod = "mse"
    percentile: float = 99.999
    weight_bits: int = 7

    def __post_init__(self) -> None:
        if self.weight_bits not in (7, 8):
            raise ConfigError(f"weight_bits must be 7 or 8, got {self.weight_bits}")
        if not 50 < self.percentile <= 100:
            raise ConfigError(f"percentile must lie above 50 and at most at 100, got {self.percentile}")


@dataclass(frozen=True)
class Histogram:
    """Values of one activation over the calibration text: counts over equal bins between low and high."""

    low: float
    high: float
    counts: NDArray[np.int64]

    @property
    def centers(self) -> NDArray[np.float64]:
        """Middle of each bin."""
        width = (self.high - self.low) / len(self.counts)
        return np.asarray(self.low + width * (np.arange(len(self.counts)) + 0.5), np.float64)


def quantize(
    source: Path,
    target: Path,
    *,
    activations: Mapping[str, Histogram],
    config: QuantizeConfig | None = None,
) -> int:
    """Write the INT8 form of a fused fp32 graph; returns how many products it quantized.

    `activations` is what `measure_activations` saw on the same graph.
    """
    import onnx

    config = config or QuantizeConfig()
    model = onnx.load(str(source))
    ranges = {name: choose_range(histogram, config) for name, histogram in activations.items()}
    n_quantized = _quantize_products(model.graph, ranges, config)
    _quantize_quick_gelus(model.graph, ranges)
    _quantize_tables(model.graph)
    _drop_unused(model.graph)
    check_static(model)
    onnx.checker.check_model(model)
    onnx.save(model, str(target))
    log.info("quantized %d products into %s (%d bytes)", n_quantized, target.name, target.stat().st_size)
    return n_quantized


def activation_names(graph: GraphProto) -> list[str]:
    """The distinct inputs of the nodes that will be quantized, in graph order."""
    constants = {t.name: t for t in graph.initializer}
    changed = (n for n in graph.node if n.op_type == "QuickGelu" or _is_target(n, constants))
    return list(dict.fromkeys(n.input[0] for n in changed))


def check_static(model: ModelProto) -> None:
    """BundleError where an operator takes its range at run time."""
    if found := sorted({n.op_type for n in model.graph.node} & set(_FORBIDDEN)):
        raise BundleError(f"the graph takes activation ranges at run time: {', '.join(found)}")


def measure_activations(source: Path, feeds: Sequence[Feed], *, threads: int = 1) -> dict[str, Histogram]:
    """Value counts of the input of each node that `quantize` will change; two passes, so no value is kept.

    Calibration windows come one at a time and unpadded, from train or dev text only.

    Raises:
        BundleError: the graph has no MatMul to quantize.
    """
    import onnx

    model = onnx.load(str(source))
    names = activation_names(model.graph)
    if not names:
        raise BundleError(f"{source} has no MatMul with constant weights: nothing to quantize")
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    session = _session(model.SerializeToString(), threads)
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for feed in feeds:
        values = session.run(names, dict(feed))
        low = np.minimum(low, [v.min() for v in values])
        high = np.maximum(high, [v.max() for v in values])
    counts = np.zeros((len(names), _BINS), np.int64)
    scale = _BINS / np.maximum(high - low, 1e-8)
    for feed in feeds:
        for i, v in enumerate(session.run(names, dict(feed))):
            bins = np.minimum(((v.ravel() - low[i]) * scale[i]).astype(np.int32), _BINS - 1)
            counts[i] += np.bincount(bins, minlength=_BINS)
    return {name: Histogram(float(low[i]), float(high[i]), counts[i]) for i, name in enumerate(names)}


def rms_difference(reference: Path, candidate: Path, feeds: Sequence[Feed], *, threads: int = 1) -> float:
    """Root mean square of the difference between two graphs' logits over the feeds."""
    first, second = (_session(str(path), threads) for path in (reference, candidate))
    squares, n = 0.0, 0
    for feed in feeds:
        difference = first.run(None, dict(feed))[0] - second.run(None, dict(feed))[0]
        squares += float((difference**2).sum())
        n += difference.size
    return float(np.sqrt(squares / max(1, n)))


def _session(model: str | bytes, threads: int) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def choose_range(histogram: Histogram, config: QuantizeConfig) -> tuple[float, float]:
    """The range that eight bits will cover; zero always lies in it, as a zero point needs."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    if config.method == "minmax":
        return low, high
    if config.method == "percentile":
        share = np.cumsum(histogram.counts) / histogram.counts.sum()
        tail = (1 - config.percentile / 100) / 2
        centers = histogram.centers
        first, last = np.searchsorted(share, [tail, 1 - tail]).tolist()
        return min(float(centers[first]), 0.0), max(float(centers[min(last, _BINS - 1)]), 0.0)
    return _least_squares_range(histogram, low, high)


def _least_squares_range(histogram: Histogram, low: float, high: float) -> tuple[float, float]:
    """The pair of clipped ends with the smallest squared error, over a grid of both."""
    values, counts = histogram.centers, histogram.counts
    best, error = (low, high), np.inf
    for a in np.linspace(0.3, 1.0, 29):
        for b in np.linspace(0.3, 1.0, 29):
            scale, zero = _affine(low * a, high * b)
            rounded = (np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale
            e = float((counts * (values - rounded) ** 2).sum())
            if e < error:
                best, error = (low * a, high * b), e
    return best


def _affine(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of uint8 over a range that holds zero."""
    scale = max(high - low, 1e-8) / 255
    return scale, round(-low / scale)


def _is_target(node: object, constants: Mapping[str, object]) -> bool:
    return (
        node.op_type in ("MatMul", "Gemm", "Attention")  # type: ignore[attr-defined]
        and node.input[1] in constants  # type: ignore[attr-defined]
        and min(constants[node.input[1]].dims) >= _MIN_COLUMNS  # type: ignore[attr-defined]
    )


def _quantize_products(
    graph: GraphProto, ranges: Mapping[str, tuple[float, float]], config: QuantizeConfig
) -> int:
    """Put a Quantize/Dequantize pair before each product, whose input no other product reads."""
    from onnx import numpy_helper
    from onnx.helper import make_node

    constants = {t.name: t for t in graph.initializer}
    nodes, n_quantized = [], 0
    for node in graph.node:
        if _is_target(node, constants):
            x, w = node.input[:2]
            scale, zero = _affine(*ranges[x])
            _constant(graph, f"{x}_scale", np.float32(scale))
            _constant(graph, f"{x}_zero", np.uint8(zero))
            weights, scales = quantize_columns(numpy_helper.to_array(constants[w]), bits=config.weight_bits)
            _constant(graph, f"{w}_q", weights)
            _constant(graph, f"{w}_scale", scales)
            _constant(graph, f"{w}_zero", np.zeros(len(scales), np.int8))
            n_quantized += 1
            quantizing, dequantizing = _rounding(x, [f"{x}_scale", f"{x}_zero"])
            nodes.append(quantizing)
            if node.op_type == "Attention":
                nodes.append(_quantized_attention(node))
                continue
            inputs = [f"{w}_q", f"{w}_scale", f"{w}_zero"]
            nodes += [
                dequantizing,
                make_node("DequantizeLinear", inputs, [f"{w}_dq"], f"{w}_dequantize", axis=1),
            ]
            node.input[0], node.input[1] = f"{x}_dq", f"{w}_dq"
            if node.op_type == "Gemm":
                nodes.append(_quantized_bias(graph, node, constants, np.float32(scale) * scales))
        nodes.append(node)
    graph.ClearField("node")
    graph.node.extend(nodes)
    return n_quantized


def _rounding(x: str, bounds: Sequence[str]) -> list[NodeProto]:
    """A tensor to eight bits (`<x>_q`) and back (`<x>_dq`), by a scale and a zero point."""
    from onnx.helper import make_node

    return [
        make_node("QuantizeLinear", [x, *bounds], [f"{x}_q"], f"{x}_quantize"),
        make_node("DequantizeLinear", [f"{x}_q", *bounds], [f"{x}_dq"], f"{x}_dequantize"),
    ]


def _quantize_quick_gelus(graph: GraphProto, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Put x * sigmoid(alpha x) between Quantize/Dequantize pairs in the place of each QuickGELU."""
    from onnx.helper import get_node_attr_value, make_node

    _constant(graph, "gate_scale", np.float32(1 / 255))
    _constant(graph, "gate_zero", np.uint8(0))
    nodes = []
    for node in graph.node:
        if node.op_type != "QuickGelu":
            nodes.append(node)
            continue
        (x,), (y,) = node.input, node.output
        low, high = ranges[x]
        scale, zero = _affine(max(low, _GELU_FLOOR), high)
        _constant(graph, f"{x}_scale", np.float32(scale))
        _constant(graph, f"{x}_steep_scale", np.float32(get_node_attr_value(node, "alpha") * scale))
        _constant(graph, f"{x}_zero", np.uint8(zero))
        pair, steep = [f"{x}_scale", f"{x}_zero"], [f"{x}_steep_scale", f"{x}_zero"]
        gate, bounds = f"{x}_gate", ["gate_scale", "gate_zero"]
        nodes += [
            *_rounding(x, pair),
            make_node("DequantizeLinear", [f"{x}_q", *steep], [f"{x}_steep"], f"{x}_dequantize_steep"),
            make_node("Sigmoid", [f"{x}_steep"], [gate], f"{gate}.Sigmoid"),
            *_rounding(gate, bounds),
            make_node("Mul", [f"{x}_dq", f"{gate}_dq"], [y], f"{y}.Mul"),
        ]
    graph.ClearField("node")
    graph.node.extend(nodes)


def _quantized_attention(node: NodeProto) -> NodeProto:
    """Attention with its projections in integers."""
    from onnx.helper import make_node

    x, w, bias, mask = node.input
    inputs = [f"{x}_q", f"{w}_q", bias, f"{x}_scale", f"{w}_scale", mask, f"{x}_zero", f"{w}_zero"]
    quantized = make_node("QAttention", inputs, node.output, f"{node.name}_quantized", domain=node.domain)
    quantized.attribute.extend(node.attribute)
    return quantized


def _quantized_bias(
    graph: GraphProto, node: NodeProto, constants: Mapping[str, TensorProto], units: NDArray[np.float32]
) -> NodeProto:
    """Give a Gemm its bias in int32, in units of its products: so ONNX Runtime has an integer form."""
    from onnx import numpy_helper
    from onnx.helper import make_node

    bias = node.input[2]
    rounded = np.rint(numpy_helper.to_array(constants[bias]) / units)
    limits = np.iinfo(np.int32)
    _constant(graph, f"{bias}_q", np.clip(rounded, limits.min, limits.max).astype(np.int32))
    _constant(graph, f"{bias}_scale", units)
    _constant(graph, f"{bias}_zero", np.zeros(len(units), np.int32))
    node.input[2] = f"{bias}_dq"
    inputs = [f"{bias}_q", f"{bias}_scale", f"{bias}_zero"]
    return make_node("DequantizeLinear", inputs, [f"{bias}_dq"], f"{bias}_dequantize", axis=0)


def quantize_columns(
    weights: NDArray[np.float32], *, bits: int = 8
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(n_in, n_out) weights to symmetric int8 with a scale per output column."""
    top = 2 ** (bits - 1) - 1
    scales = np.maximum(np.abs(weights).max(axis=0), 1e-8) / top
    return np.rint(weights / scales).astype(np.int8), scales.astype(np.float32)


def _quantize_tables(graph: GraphProto) -> None:
    """Large embedding tables to int8 with a scale per row: Gather, Cast, times the gathered scale."""
    from onnx import TensorProto, numpy_helper
    from onnx.helper import make_node

    constants = {t.name: t for t in graph.initializer}
    nodes = []
    for node in graph.node:
        table = constants.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or len(table.dims) != 2 or table.dims[0] < 1_024:
            nodes.append(node)
            continue
        name, (rows,), (out,) = table.name, node.input[1:2], node.output
        values, scales = quantize_columns(numpy_helper.to_array(table).T)
        _constant(graph, f"{name}_q", np.ascontiguousarray(values.T))
        _constant(graph, f"{name}_scale", scales[:, None])
        nodes += [
            make_node("Gather", [f"{name}_q", rows], [f"{out}_q"], f"{name}_rows", axis=0),
            make_node("Cast", [f"{out}_q"], [f"{out}_f"], f"{name}_cast", to=TensorProto.FLOAT),
            make_node("Gather", [f"{name}_scale", rows], [f"{out}_scale"], f"{name}_scales", axis=0),
            make_node("Mul", [f"{out}_f", f"{out}_scale"], [out], f"{name}_scaled"),
        ]
    graph.ClearField("node")
    graph.node.extend(nodes)


def _constant(graph: GraphProto, name: str, value: NDArray[np.generic] | np.generic) -> None:
    from onnx import numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def _drop_unused(graph: GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [t for t in graph.initializer if t.name in used]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)
