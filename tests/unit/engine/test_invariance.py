"""The same text gives the same entities whatever the batch, the look-ahead, the arrays and the neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_ner.engine import Engine, EngineSpec, load_engine
from spark_ner.types import Entity
from tests.fixtures import corpora
from tests.fixtures.models import DEFAULT_BUNDLE, save_model
from tests.fixtures.taggers import table_engine
from tests.fixtures.tokenizers import tokenizer

N_DOCUMENTS, N_BATCHINGS = 200, 50
Answer = list[Entity] | None


def documents(n: int = N_DOCUMENTS, *, median_words: int = 14, seed: int = 11) -> list[str | None]:
    """Lines, paragraphs of several windows, nulls, empties, messy Unicode."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(median_words), 1.0, n).astype(int), 1, 600)
    texts: list[str | None] = [corpora.words(rng, k) for k in lengths]
    texts[3], texts[17], texts[29] = None, "", " \u200b\r\n"
    texts[31] = "e\u0301\u0323👩\u200d👩\u200d👧Oslo\x00İzmir½…東京と大阪" * 9
    texts[37], texts[38] = (
        "in the U.S.",
        "3.",
    )  # next to a letter or a digit, the last point would belong to a word
    return texts


def annotate_shuffled(engine: Engine, texts: list[str | None], rng: np.random.Generator) -> list[Answer]:
    """Entities of each text under a random order and split into arrays."""
    order = rng.permutation(len(texts))
    edges = np.sort(rng.integers(0, len(texts) + 1, int(rng.integers(0, 40))))
    arrays = [pa.array([texts[i] for i in part], pa.string()) for part in np.split(order, edges)]
    found: list[Answer] = [None] * len(texts)
    answers: Iterator[Answer] = (answer for entities in engine.annotate_stream(arrays) for answer in entities)
    for i, answer in zip(order.tolist(), answers, strict=True):
        found[i] = answer
    return found


def assert_invariant(
    engine: Engine, texts: list[str | None], *, batchings: int, score_tolerance: float = 0.0, most: int = 100
) -> None:
    alone = [engine.annotate([text])[0] for text in texts]
    n_entities = sum(len(a or []) for a in alone)
    n_words = sum(len((t or "").split()) for t in texts)
    assert n_entities > n_words / most, "too few entities to show a difference"
    rng = np.random.default_rng(23)
    for i in range(batchings):
        batch, ahead = (1, 1) if i == 0 else (int(2 ** rng.uniform(9, 13)), int(2 ** rng.uniform(11, 16)))
        engine.spec = dataclasses.replace(engine.spec, batch_tokens=batch, lookahead_tokens=ahead)
        found = annotate_shuffled(engine, texts, rng)
        if score_tolerance == 0:
            assert found == alone, engine.spec
            continue
        assert [strip(a) for a in found] == [strip(a) for a in alone], engine.spec
        far = max(
            abs(a.score - b.score)
            for x, y in zip(found, alone, strict=True)
            for a, b in zip(x or [], y or [], strict=True)
        )
        assert far <= score_tolerance


def strip(answer: Answer) -> list[tuple[int, int, str]] | None:
    return None if answer is None else [(e.start, e.end, e.label) for e in answer]


def test_fake() -> None:
    assert_invariant(load_engine("fake"), documents(median_words=3), batchings=N_BATCHINGS)


@pytest.mark.parametrize(
    ("family", "strategy"), [("wordpiece-uncased", "first"), ("byte-bpe", "average"), ("unigram", "max")]
)
def test_random_tags(family: str, strategy: str) -> None:
    engine = table_engine(tokenizer(family), word_strategy=strategy, window_tokens=60, overlap_tokens=20)
    assert_invariant(engine, documents(80, median_words=10), batchings=8, most=3)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("n", "batchings"), [(50, 5), pytest.param(N_DOCUMENTS, N_BATCHINGS, marks=pytest.mark.slow)]
)
def test_random_bert(tmp_path: Path, n: int, batchings: int) -> None:
    """Scores may move in their last bits with the number of rows (kernels do); spans and labels may not."""
    pytest.importorskip("torch")
    engine = load_engine(save_model(tmp_path, "bert"), spec=EngineSpec(threads=1))
    texts = documents(n, median_words=4)
    assert_invariant(engine, texts, batchings=batchings, score_tolerance=1e-5, most=5)


needs_default = pytest.mark.skipif(not DEFAULT_BUNDLE.is_dir(), reason="the default bundle is not built")


@needs_default
@pytest.mark.parametrize(
    ("n", "batchings"), [(40, 5), pytest.param(N_DOCUMENTS, N_BATCHINGS, marks=pytest.mark.slow)]
)
def test_default_bundle(n: int, batchings: int) -> None:
    engine = load_engine("default")
    assert_invariant(engine, documents(n, median_words=6), batchings=batchings, score_tolerance=1e-4)


def test_threads_and_repetition_change_nothing() -> None:
    engine = table_engine(tokenizer("unigram"), window_tokens=40, overlap_tokens=10)
    texts = documents(60)
    expected = list(engine.annotate(texts))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: list(engine.annotate(texts)), range(8)):
            assert found == expected
