"""ONNX Runtime on tiny graphs: inputs by name, scores as computed, a graph it cannot load is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spark_ner.engine import load_engine
from spark_ner.engine.runtimes import Batch
from spark_ner.engine.runtimes.onnx import OnnxRuntime
from spark_ner.errors import BundleError
from tests.fixtures.bundles import make_bundle, table_graph

pytest.importorskip("onnx")


def test_scores_are_those_of_the_graph(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    runtime = OnnxRuntime(table_graph(tmp_path / "m.onnx", table), threads=1, precision="fp32")
    ids = np.array([[1, 2, 3], [4, 5, 0]], np.int64)
    scores = runtime.scores(Batch(ids, (ids > 0).astype(np.int64), np.zeros_like(ids)))
    np.testing.assert_array_equal(scores, table[ids])
    assert scores.dtype == np.float32
    assert runtime.name == "onnx/fp32"


def test_token_types_are_given_where_the_graph_has_them(tmp_path: Path) -> None:
    table = np.zeros((50, 3), np.float32)
    file = table_graph(tmp_path / "m.onnx", table, token_types=True)
    runtime = OnnxRuntime(file, threads=1, precision="fp32")
    ids = np.ones((1, 3), np.int64)
    kinds = np.array([[0, 3, 5]], np.int64)
    assert runtime.scores(Batch(ids, ids, kinds))[0, :, 1].tolist() == [0.0, 300.0, 500.0]


def test_a_graph_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    with pytest.raises(BundleError, match=r"ONNX Runtime .* cannot load m.onnx"):
        OnnxRuntime(tmp_path / "m.onnx", threads=1, precision="fp32")


def test_the_engine_of_a_bundle_with_letter_case(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "tiny", token_feature="letter_case")
    engine = load_engine(bundle.path)
    assert engine.runtime.name == "onnx/int8"
    (found,) = engine.annotate(["Ada Novak met Lars in Oslo"])
    assert found is not None
