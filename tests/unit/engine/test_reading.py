"""Look-ahead: bounded chunks; a document read slab by slab gets the windows and words of the whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ner.engine import reading
from spark_ner.engine.reading import Chunk, lookahead
from spark_ner.engine.tokenizer import Tokenizer
from tests.fixtures import corpora
from tests.fixtures import texts as random_text
from tests.fixtures.taggers import table_engine
from tests.fixtures.tokenizers import rust_tokenizer, tokenizer


def chunks(
    arrays: Sequence[Sequence[str | None]],
    engine_tokenizer: Tokenizer,
    *,
    tokens: int = 1_000,
    size: int = 30,
) -> list[Chunk]:
    return list(lookahead(arrays, engine_tokenizer, size=size, overlap=8, tokens=tokens))


def long_text(n_words: int, seed: int = 0) -> str:
    return corpora.words(np.random.default_rng(seed), n_words)


def test_each_array_is_finished_once_in_order() -> None:
    arrays = [["Oslo"], [], [None, ""], [long_text(900)], ["a", "b"]]
    found = chunks(arrays, tokenizer("wordpiece-cased"), tokens=50)
    finished = [documents.texts for chunk in found for documents in chunk.finished]
    assert finished == arrays
    assert [len(c.finished) for c in found][-1] >= 1


def test_chunks_are_bounded_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SLAB_CHARS", 400)
    engine_tokenizer = tokenizer("wordpiece-cased", slab_chars=400)
    arrays = [[long_text(3_000), *(long_text(8, i) for i in range(300))] for _ in range(2)]
    found = chunks(arrays, engine_tokenizer, tokens=1_000)
    sizes = [len(c.tokens) for c in found]
    assert len(found) > 5
    assert max(sizes) < 1_000 + 2 * 400  # one slab more, and what the slab before left
    assert min(sizes[:-1]) >= 1_000


def test_windows_that_own_no_word_are_not_computed() -> None:
    (chunk,) = chunks([["", " \n ", "\u200b", "Oslo", None]], tokenizer("byte-bpe"))
    words = [chunk.owner[i][1] for i in chunk.text_of(chunk.word_rows)]
    # U+200B alone is a word of byte-level tokenizers; blanks are not.
    assert words == [2, 3]
    assert len(chunk.windows) == 2


def test_rejected_documents_leave_a_sentence_and_no_token() -> None:
    documents = ["short", "much too long", "tiny"]
    (chunk,) = lookahead(
        [documents],
        tokenizer("unigram"),
        size=30,
        overlap=8,
        tokens=100,
        reject=lambda t: "no" if len(t) > 6 else None,
    )
    assert chunk.finished[0].errors == {1: "no"}
    assert {index for _, index in chunk.owner} == {0, 2}


@pytest.mark.parametrize("family", ["wordpiece-uncased", "byte-bpe", "unigram"])
@settings(max_examples=8)
@given(text=random_text.messy(max_pieces=60), n_words=st.integers(50, 300), seed=st.integers(0, 99))
def test_slab_by_slab_gives_the_entities_of_the_whole(
    family: str, text: str, n_words: int, seed: int
) -> None:
    text = (text + " " + long_text(n_words, seed)).replace("a" * 110, "a")
    whole = table_engine(tokenizer(family), window_tokens=40, overlap_tokens=12)
    slabbed = table_engine(
        tokenizer(family, slab_chars=256), window_tokens=40, overlap_tokens=12, lookahead_tokens=90
    )
    expected = list(whole.annotate(["Oslo", text, "Ada"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "SLAB_CHARS", 256)
        found = list(slabbed.annotate(["Oslo", text, "Ada"]))
    assert found == expected
    assert slabbed.stats.windows == whole.stats.windows


def test_a_word_longer_than_its_slab(monkeypatch: pytest.MonkeyPatch) -> None:
    """One word of 3,000 characters, between names, in slabs of 256."""
    monkeypatch.setattr(reading, "SLAB_CHARS", 256)
    text = "Oslo " + "x" * 3_000 + " Rome"
    for family in ("byte-bpe", "unigram", "wordpiece-cased"):
        engine = table_engine(tokenizer(family, slab_chars=256), window_tokens=40, overlap_tokens=12)
        whole = table_engine(tokenizer(family), max_tokens=9_000, window_tokens=8_000)
        engine.annotate([text])
        whole.annotate([text])
        assert engine.stats.words == whole.stats.words == 3


# --- a tokenizer that fails -----------------------------------------------------------------------


class Breaking(Tokenizer):
    """Raises on any call that holds the marker, as a Rust tokenizer without an unknown token does."""

    def encode(self, texts):  # type: ignore[no-untyped-def]
        if any("XQ-CANARY-7" in t for t in texts):
            raise ValueError("no token for XQ-CANARY-7")
        return super().encode(texts)


@pytest.mark.parametrize("bad", ["a XQ-CANARY-7", "in May " * 200 + "XQ-CANARY-7 " + "in May " * 200])
def test_a_document_the_tokenizer_cannot_read_fails_alone(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(reading, "SLAB_CHARS", 400)
    texts = ["Oslo in May", bad, None, "Ada Novak"]
    engine = table_engine(Breaking(rust_tokenizer("wordpiece-cased"), slab_chars=400))
    healthy = table_engine(tokenizer("wordpiece-cased", slab_chars=400))
    found = engine.annotate(texts)
    expected = healthy.annotate(texts)
    assert dict(found.errors) == {1: "the tokenizer failed on the document: ValueError"}
    assert found[1] is None
    assert [found[0], found[3]] == [expected[0], expected[3]]
    assert engine.stats.errors == 1
