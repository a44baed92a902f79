"""Padding under 6 % at batch_tokens 1,024 and more, on sentences and on a mix of short and long texts."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ner.engine import Engine, EngineSpec, load_engine
from spark_ner.engine.tokenizer import Tokenizer
from tests.fixtures.corpora import mixture, sentences
from tests.fixtures.models import DEFAULT_BUNDLE
from tests.fixtures.taggers import IOB2, Recorder, TableRuntime, engine_with
from tests.fixtures.tokenizers import tokenizer

BOUND = 0.06
TEXTS: dict[str, Callable[[], list[str]]] = {
    "sentences": lambda: sentences(700),
    "one-line and 2,000-word documents": lambda: mixture(350),
}


def recorded(engine_tokenizer: Tokenizer, **settings: object) -> tuple[Engine, Recorder]:
    recorder = Recorder(TableRuntime(len(engine_tokenizer.vocabulary()) + 1, len(IOB2)))
    return engine_with(engine_tokenizer, recorder, **settings), recorder


@pytest.mark.parametrize("batch_tokens", [1_024, 8_192])
@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize("family", ["wordpiece-cased", "byte-bpe"])
def test_padding_share_and_shapes(family: str, texts: str, batch_tokens: int) -> None:
    engine, recorder = recorded(tokenizer(family), batch_tokens=batch_tokens)
    engine.annotate(TEXTS[texts]())
    batches = recorder.batches
    real, computed = sum(int(b.mask.sum()) for b in batches), sum(b.mask.size for b in batches)
    assert (engine.stats.tokens, engine.stats.padded_tokens) == (real, computed)
    assert engine.stats.padding_share == pytest.approx(1 - real / computed)
    assert 0 < engine.stats.padding_share < BOUND
    assert all(b.mask.size <= batch_tokens for b in batches)
    assert len({b.ids.shape[1] for b in batches}) <= 40  # lengths up to 256: bounded whatever the texts
    assert sum(len(b.ids) for b in batches) == engine.stats.windows


def test_the_fake_engine_reports_its_padding() -> None:
    engine = load_engine("fake")
    engine.annotate(sentences(300))
    assert 0 < engine.stats.padding_share < BOUND


@pytest.mark.shared
@pytest.mark.skipif(not DEFAULT_BUNDLE.is_dir(), reason="the default bundle is not built")
def test_padding_of_real_sentences(shared_dir: Path) -> None:
    file = shared_dir / "data" / "uner-en-ewt" / "en_ewt-ud-dev.iob2.gz"
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
    texts = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
    engine, _ = recorded(Tokenizer.from_file(DEFAULT_BUNDLE / "tokenizer.json"))
    engine.annotate(texts[:1_000])
    assert engine.spec == EngineSpec()
    assert 0 < engine.stats.padding_share < BOUND
