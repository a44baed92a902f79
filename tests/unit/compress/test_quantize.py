"""Static INT8: what is quantized, how near it stays, and that no row changes another's answer."""

from collections import Counter

import numpy as np
import onnxruntime
import pytest

from spark_ner.bundle import Variant, publish
from spark_ner.compress.export import export_onnx
from spark_ner.compress.quantize import (
    Histogram,
    QuantizeConfig,
    check_static,
    choose_range,
    measure_activations,
    quantize,
    quantize_columns,
)
from spark_ner.compress.restore import restore_torch
from spark_ner.errors import BundleError, ConfigError
from spark_ner.labels import iob2_tags
from tests.fixtures.marks import with_torch
from tests.fixtures.tokenizers import rust_tokenizer

pytestmark = with_torch
N_VOCABULARY, N_LAYERS = 1_200, 2


def feed(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(0, N_VOCABULARY, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": rng.integers(0, 6, shape),
    }


def setup_module() -> None:
    global onnx, torch, transformers
    import onnx
    import torch
    import transformers


@pytest.fixture(scope="module", params=["gelu", "quick_gelu"])
def graphs(request, tmp_path_factory):
    """fp32 and INT8 graphs of a tiny random BERT."""
    folder = tmp_path_factory.mktemp("graphs")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=N_VOCABULARY,
        hidden_size=64,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=256,
        type_vocab_size=6,
        num_labels=9,
        initializer_range=0.2,
        hidden_act=request.param,
    )
    transformers.BertForTokenClassification(config).save_pretrained(folder / "model")
    difference = export_onnx(folder / "model", folder / "fp32.onnx")
    activations = measure_activations(folder / "fp32.onnx", [feed((1, 5 + i), i) for i in range(20)])
    n = quantize(folder / "fp32.onnx", folder / "int8.onnx", activations=activations)
    return folder, difference, n, request.param


def run(file, inputs) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(["logits"], inputs)[0]


def test_the_export_computes_what_pytorch_computes(graphs):
    _, difference, _, _ = graphs
    assert difference < 1e-4


def test_every_projection_is_quantized_and_the_head_is_not(graphs):
    folder, _, n, activation = graphs
    assert n == 4 * N_LAYERS  # Q, K and V are one
    graph = onnx.load(folder / "int8.onnx").graph
    kinds = Counter(node.op_type for node in graph.node)
    of_gate = 2 if activation == "quick_gelu" else 0
    assert kinds["QuantizeLinear"] == (4 + of_gate) * N_LAYERS
    assert kinds["MatMul"] + kinds["Gemm"] == 3 * N_LAYERS + 1
    names = {tuple(t.dims): t.data_type for t in graph.initializer if len(t.dims) == 2}
    assert names[(N_VOCABULARY, 64)] == onnx.TensorProto.INT8
    assert names[(64, 9)] == onnx.TensorProto.FLOAT


def test_onnx_runtime_fuses_each_projection_into_one_integer_product(graphs, tmp_path):
    folder, _, n, activation = graphs
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(str(folder / "int8.onnx"), options, providers=["CPUExecutionProvider"])
    kinds = Counter(node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node)
    assert (kinds["QAttention"], kinds["QGemm"], kinds["MatMulIntegerToFloat"]) == (
        N_LAYERS,
        N_LAYERS,
        n // 2,
    )
    # With QuickGELU the first feed-forward layer stays in integers to its end.
    quick = N_LAYERS if activation == "quick_gelu" else 0
    assert (kinds["QLinearSigmoid"], kinds["QLinearMul"], kinds["Gelu"]) == (quick, quick, N_LAYERS - quick)
    assert kinds["DequantizeLinear"] == 0
    assert not [k for k in kinds if k.startswith("DynamicQuantize")]


def test_int8_stays_near_fp32(graphs):
    folder, *_ = graphs
    inputs = feed((4, 24), 99)
    wanted, got = run(folder / "fp32.onnx", inputs), run(folder / "int8.onnx", inputs)
    assert np.abs(got - wanted).max() < 0.1 * np.abs(wanted).max()
    assert (got.argmax(-1) == wanted.argmax(-1)).mean() > 0.9


@pytest.mark.parametrize("name", ["fp32.onnx", "int8.onnx"])
def test_a_row_has_the_same_scores_whatever_its_neighbours(graphs, name):
    folder, *_ = graphs
    inputs = feed((6, 16), 5)
    inputs["attention_mask"][2, 9:] = 0
    together = run(folder / name, inputs)
    for row in range(6):
        alone = run(folder / name, {k: v[row : row + 1] for k, v in inputs.items()})
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=2e-5)


def test_a_graph_with_ranges_at_run_time_is_refused():
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    graph = onnx.helper.make_graph([node], "g", [], [])
    with pytest.raises(BundleError, match="run time: DynamicQuantizeLinear"):
        check_static(onnx.helper.make_model(graph))


def test_a_graph_without_weights_is_refused(tmp_path):
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value], [out])), tmp_path / "a.onnx"
    )
    with pytest.raises(BundleError, match="no MatMul"):
        measure_activations(tmp_path / "a.onnx", [])


def test_columns_have_their_own_scale_and_round_to_the_nearest():
    weights = np.array([[1.0, -0.01], [-0.5, 0.002]], np.float32)
    values, scales = quantize_columns(weights)
    assert values.tolist() == [[127, -127], [-64, 25]]
    np.testing.assert_allclose(values * scales, weights, atol=float(scales.max()) / 2)
    assert np.abs(quantize_columns(weights, bits=7)[0]).max() == 63


def test_ranges_hold_zero_and_clip_outliers_where_told():
    counts = np.zeros(4096, np.int64)
    counts[:400] = 1_000_000
    counts[-1] = 1
    outlier = Histogram(1.0, 101.0, counts)
    assert choose_range(outlier, QuantizeConfig(method="minmax")) == (0.0, 101.0)
    low, high = choose_range(outlier, QuantizeConfig(method="percentile", percentile=99.9))
    assert low == 0.0
    assert 10 < high < 12
    low, high = choose_range(outlier, QuantizeConfig(method="mse"))
    assert low == 0.0
    assert high < 50


@pytest.mark.parametrize("wrong", [{"weight_bits": 4}, {"percentile": 10.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        QuantizeConfig(**wrong)


def test_a_published_graph_goes_back_to_a_hugging_face_directory(graphs, tmp_path):
    folder, _, _, activation = graphs
    tags = iob2_tags(("PER", "ORG", "LOC", "MISC"))
    rust_tokenizer("wordpiece-uncased").save(str(tmp_path / "tokenizer.json"))
    publish(
        tmp_path / "bundle",
        name="tiny",
        version="1",
        labels=tags,
        max_tokens=256,
        variants={"int8": Variant(runtime="onnx", precision="int8", files=("model.onnx",))},
        sources={"model.onnx": folder / "int8.onnx", "tokenizer.json": tmp_path / "tokenizer.json"},
    )
    restore_torch(tmp_path / "bundle", tmp_path / "back")
    model = transformers.BertForTokenClassification.from_pretrained(tmp_path / "back").eval()
    assert model.config.hidden_act == activation
    inputs = feed((2, 20), 3)
    with torch.inference_mode():
        got = model(**{k: torch.from_numpy(v) for k, v in inputs.items()}).logits.numpy()
    wanted = run(folder / "fp32.onnx", inputs)
    assert np.abs(got - wanted).max() < 0.1 * np.abs(wanted).max()
