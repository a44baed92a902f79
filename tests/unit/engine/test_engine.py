"""The loop over fixed random taggers: exact spans, windows that leave no trace, counters, failing rows."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_ner.engine import Engine, EngineSpec, EngineStats, load_engine
from spark_ner.engine.engine import strings
from spark_ner.engine.runtimes import Batch
from spark_ner.errors import ConfigError, PathError, RowError
from spark_ner.labels import LabelScheme
from tests.fixtures import texts as random_text
from tests.fixtures.taggers import (
    IOB2,
    Recorder,
    TableRuntime,
    engine_with,
    phrase_engine,
    spans,
    table_engine,
)
from tests.fixtures.tokenizers import FAMILIES, tokenizer
from tests.unit.engine.test_decode import plain_word_tag
from tests.unit.test_labels import by_the_book

families = pytest.mark.parametrize("family", FAMILIES)
CANARY = "XQ-CANARY-7"


@families
@settings(max_examples=20)
@given(
    texts=st.lists(st.one_of(st.none(), random_text.messy()), min_size=1, max_size=4), size=st.integers(4, 30)
)
@example(
    texts=["\u200b\u200d\ufeff", "\x00\x01", "", " \r\n", None, "👩\u200d👩\u200d👧 e\u0301\u0323", "½…İi"],
    size=5,
)
def test_spans_are_exact_sorted_disjoint_and_not_blank(
    family: str, texts: list[str | None], size: int
) -> None:
    engine = table_engine(tokenizer(family), window_tokens=size, overlap_tokens=size // 3)
    found = engine.annotate(texts)
    assert len(found) == len(texts)
    for text, entities in zip(texts, found, strict=True):
        assert (entities is None) == (text is None)
        before = 0
        for entity in entities or []:
            assert text is not None
            assert before <= entity.start < entity.end <= len(text)
            surface = text[entity.start : entity.end].encode("utf-8", "replace").decode()
            assert entity.text.replace("\ufffd", "?") == surface.replace("\ufffd", "?")
            assert entity.text == entity.text.strip() != ""
            assert 0 < entity.score <= 1
            before = entity.end
    found.to_arrow().validate(full=True)


@families
@settings(max_examples=10)
@given(pieces=st.lists(random_text.snippet, min_size=20, max_size=80))
def test_windows_leave_no_trace(family: str, pieces: list[str]) -> None:
    """The tagger's context is one token: windows that overlap by more give what one window gives."""
    text = " ".join(p for p in pieces if len(p) < 100)  # every word fits the overlap
    whole = table_engine(tokenizer(family), max_tokens=100_000, window_tokens=90_000)
    windowed = table_engine(tokenizer(family), window_tokens=40, overlap_tokens=30)
    assert list(windowed.annotate([text])) == list(whole.annotate([text]))


def test_a_document_of_one_window_gives_what_a_single_call_gives() -> None:
    """The tags are the argmax of the runtime's scores at each word's first token, on one plain call."""
    engine_tokenizer = tokenizer("wordpiece-cased")
    runtime = TableRuntime(len(engine_tokenizer.vocabulary()), len(IOB2))
    text = "Ada Novak met Lars in Oslo, and Mina in Ghentbrugge."
    tokens = engine_tokenizer.encode([text])
    ids = np.array([[2, *tokens.ids, 3]], np.int64)
    scores = runtime.scores(Batch(ids, np.ones_like(ids), np.zeros_like(ids)))[0, 1:-1]
    tags = [IOB2[i] for i in scores.argmax(axis=1)[tokens.word]]
    starts = tokens.start[tokens.word].tolist()
    found = spans(engine_with(engine_tokenizer, runtime), text)
    begins = [(s, t.partition("-")[2]) for s, t, before in zip(starts, tags, ["O", *tags], strict=False)
              if t != "O" and (t[0] == "B" or t.partition("-")[2] != before.partition("-")[2])]  # fmt: skip
    assert [(s, label) for s, _, label in found] == begins
    assert len(found) >= 4


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
def test_word_strategy_reads_all_tokens_of_a_word_or_the_first(strategy: str) -> None:
    engine_tokenizer = tokenizer("wordpiece-cased")
    engine = engine_with(engine_tokenizer, LastPieces(engine_tokenizer.vocabulary()), word_strategy=strategy)
    # "Lagosx" -> Lagos ##x: the head says O by 0.6, the tail says LOC by 0.99.
    wanted = [] if strategy == "first" else [(3, 9, "LOC")]
    assert spans(engine, "in Lagosx") == wanted


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
@pytest.mark.parametrize("family", ["wordpiece-cased", "byte-bpe-prefix", "unigram", "unigram-split"])
def test_entities_equal_a_plain_loop_over_tokens(family: str, strategy: str) -> None:
    """Each word's tag is read from its own tokens; those of blanks, which belong to no word, have no say."""
    engine_tokenizer = tokenizer(family)
    runtime = TableRuntime(len(engine_tokenizer.vocabulary()), len(IOB2))
    text = "Ada Novak  met Ghentbrugge's Lars in İzmir, 3.5% of Köln-Bern 東京 Globex now"
    tokens = engine_tokenizer.encode([text])
    ids = np.array([[*engine_tokenizer.prefix_ids, *tokens.ids, *engine_tokenizer.suffix_ids]], np.int64)
    scores = runtime.scores(Batch(ids, np.ones_like(ids), np.zeros_like(ids)))[0, 1:-1]
    words: list[list[int]] = []
    for i in range(len(tokens)):
        if tokens.word[i]:
            words.append([])
        if tokens.solid[i]:
            words[-1].append(i)
    tagged = [plain_word_tag(scores[w], strategy) for w in words]
    expected = [
        (
            tokens.start[words[b][0]],
            max(tokens.end[words[e]]),
            kind,
            np.mean([s for _, s in tagged[b : e + 1]]),
        )
        for b, e, kind in by_the_book([IOB2[t] for t, _ in tagged], prefixed=True, first=[])
    ]
    assert len(expected) > 5
    assert len(tokens) > len(words)
    (found,) = engine_with(engine_tokenizer, runtime, word_strategy=strategy).annotate([text])
    assert [(e.start, e.end, e.label) for e in found or []] == [e[:3] for e in expected]
    np.testing.assert_allclose([e.score for e in found or []], [e[3] for e in expected], rtol=1e-5)


class LastPieces:
    """O on words' first tokens, rather unsure; LOC on the others, very sure."""

    name = "last pieces"

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._continues = np.zeros(len(vocabulary), bool)
        self._continues[[i for t, i in vocabulary.items() if t.startswith("##")]] = True

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        out = np.zeros((*batch.ids.shape, len(IOB2)), np.float32)
        tail = self._continues[batch.ids]
        out[~tail, 0] = 2.0
        out[tail, IOB2.index("B-LOC")] = 6.0
        return out


def test_thresholds_and_unknown_labels() -> None:
    engine_tokenizer = tokenizer("wordpiece-cased")
    text = "Ada Novak met Lars in Oslo , and Mina in Lima ."
    every = table_engine(engine_tokenizer).annotate([text])[0] or []
    cut = min(e.score for e in every if e.label == "LOC") + 1e-4
    kept = table_engine(engine_tokenizer, thresholds={"LOC": cut}).annotate([text])[0] or []
    assert kept == [e for e in every if e.label != "LOC" or e.score >= cut]
    assert len(kept) < len(every)
    with pytest.raises(ConfigError, match="threshold for 'CITY', but the model knows: PER, LOC, ORG"):
        table_engine(engine_tokenizer, thresholds={"CITY": 0.5})


def test_the_stream_gives_one_result_an_array_in_order() -> None:
    engine = load_engine("fake")
    arrays = [
        pa.array(["Oslo", None]),
        pa.array([], pa.string()),
        pa.array(["", "   ", "Ada Novak"], pa.large_string()),
        pa.array([None, None], pa.string()),
        pa.array(["word " * 2_000 + "Rome"]),
        pa.array(["Lima"]),
    ]
    found = [list(e) for e in engine.annotate_stream(iter(arrays))]
    assert [[None if d is None else [e.text for e in d] for d in a] for a in found] == [
        [["Oslo"], None],
        [],
        [[], [], ["Ada Novak"]],
        [None, None],
        [["Rome"]],
        [["Lima"]],
    ]


def test_the_stream_reads_ahead_by_tokens_and_no_further() -> None:
    engine_tokenizer = tokenizer("wordpiece-cased")
    engine = engine_with(engine_tokenizer, TableRuntime(400, len(IOB2)), lookahead_tokens=10)
    read: list[int] = []

    def arrays() -> list[pa.Array]:
        for i in range(8):
            read.append(i)
            yield pa.array(["in in in in"])

    stream = engine.annotate_stream(arrays())
    next(stream)
    assert read == [0, 1, 2]  # 12 tokens
    assert len(list(stream)) == 7


def test_documents_of_several_arrays_share_a_batch() -> None:
    engine_tokenizer = tokenizer("wordpiece-cased")
    recorder = Recorder(TableRuntime(400, len(IOB2)))
    engine = engine_with(engine_tokenizer, recorder)
    list(engine.annotate_stream([pa.array(["in May"]), pa.array(["in", "AG in"]), pa.array(["by May"])]))
    assert [b.ids.shape for b in recorder.batches] == [(2, 4), (2, 6)]
    assert engine.stats.windows == 4


def test_batches_hold_special_tokens_padding_and_letter_case() -> None:
    engine_tokenizer = tokenizer("wordpiece-cased")
    recorder = Recorder(TableRuntime(400, len(IOB2)))
    engine = Engine(tokenizer=engine_tokenizer, runtime=recorder, scheme=LabelScheme.from_tags(IOB2),
                    spec=EngineSpec(), max_tokens=512, letter_case=True)  # fmt: skip
    engine.annotate(["In AG"])
    (batch,) = recorder.batches
    body = engine_tokenizer.encode(["In AG"]).ids.tolist()
    wanted = [2, *body, 3]
    n_pad = batch.ids.shape[1] - len(wanted)
    assert n_pad == 1
    assert batch.ids.tolist() == [wanted + [0] * n_pad]
    assert batch.mask.tolist() == [[1] * len(wanted) + [0] * n_pad]
    cases = engine_tokenizer.encode(["In AG"]).case.tolist()
    assert batch.token_types.tolist() == [[0, *cases, 0] + [0] * n_pad]
    assert set(cases) == {3, 4}


def test_no_batch_is_longer_than_the_model() -> None:
    """A model whose length is no bucket (37): the last bucket is cut to it."""
    engine_tokenizer = tokenizer("wordpiece-cased")
    recorder = Recorder(TableRuntime(400, len(IOB2)))
    engine = engine_with(engine_tokenizer, recorder, max_tokens=37)
    engine.annotate(["in " * n for n in range(1, 90)])
    assert max(b.ids.shape[1] for b in recorder.batches) == 37


def test_counters() -> None:
    engine = load_engine("fake")
    assert engine.stats.padding_share == 0
    engine.annotate(["Oslo Oslo", None, "", "Ada"])
    stats = engine.stats
    # Fake words are one token a character; a window adds two special ones: 8 + 2 and 3 + 2, in 10 and 6.
    assert (stats.documents, stats.nulls, stats.errors, stats.windows) == (4, 1, 0, 2)
    assert (stats.tokens, stats.padded_tokens, stats.words, stats.entities) == (15, 16, 3, 3)
    assert stats.padding_share == pytest.approx(1 / 16)
    before = stats.snapshot()
    engine.annotate(["Oslo"])
    after = engine.stats.snapshot()
    assert {k: after[k] - before[k] for k in ("documents", "tokens", "words")} == {
        "documents": 1,
        "tokens": 6,
        "words": 1,
    }
    assert set(before) == set(EngineStats().snapshot())
    assert all(type(v) in (int, float) for v in after.values())


class Failing:
    """Fails on each window that holds the tokens of a phrase: raises, or gives NaN there."""

    name = "failing"

    def __init__(self, inner: TableRuntime, phrase: NDArray[np.int32], how: str) -> None:
        self._inner, self._phrase, self._how = inner, phrase, how

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        n = len(self._phrase)
        if batch.ids.shape[1] < n:
            return self._inner.scores(batch)
        view = np.lib.stride_tricks.sliding_window_view(batch.ids, n, axis=1)
        bad = (view == self._phrase).all(axis=2).any(axis=1)
        if bad.any() and self._how == "raise":
            raise RuntimeError(f"cannot do {CANARY}")
        out = self._inner.scores(batch)
        if self._how == "nan":
            out[bad] = np.nan
        elif self._how == "inf":
            out[bad, :, 1] = np.inf
        return out


def failing_engine(how: str, **settings: object) -> Engine:
    engine_tokenizer = tokenizer("wordpiece-cased")
    phrase = engine_tokenizer.encode([CANARY]).ids
    return engine_with(engine_tokenizer, Failing(TableRuntime(400, len(IOB2)), phrase, how), **settings)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raise", "the model failed on the document: RuntimeError"),
        ("nan", "the model failed on the document: the scores are not finite"),
        ("inf", "the model failed on the document: the scores are not finite"),
    ],
)
@pytest.mark.parametrize("bad", [f"a {CANARY} b", "in May " * 400 + CANARY + " in May" * 400])
def test_only_the_failing_document_fails(
    how: str, sentence: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str | None] = ["Oslo in May", bad, None, "Ada Novak", bad, "a b c d e f g"]
    engine, healthy = failing_engine(how), failing_engine("not")
    found = engine.annotate(texts)
    expected = list(healthy.annotate(texts))
    assert found.valid.tolist() == [True, False, False, True, False, True]
    assert [d for i, d in enumerate(found) if i not in (1, 4)] == [
        d for i, d in enumerate(expected) if i not in (1, 4)
    ]
    assert dict(found.errors) == {1: sentence, 4: sentence}
    assert found.errors_to_arrow().to_pylist() == [None, sentence, None, None, sentence, None]
    assert found.to_arrow().to_pylist()[1] is None
    assert CANARY not in caplog.text
    assert (engine.stats.errors, engine.stats.nulls, engine.stats.documents) == (2, 1, 6)
    assert engine.stats.windows == healthy.stats.windows
    assert engine.stats.tokens == healthy.stats.tokens


@pytest.mark.parametrize("how", ["raise", "nan"])
def test_on_error_fail_raises_without_the_text(how: str) -> None:
    engine = failing_engine(how, on_error="fail")
    with pytest.raises(RowError) as caught:
        engine.annotate(["Oslo", f"a {CANARY} b", "Ada"])
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(list(failing_engine(how, on_error="fail").annotate(["Oslo"]))) == 1


def test_a_document_over_the_cap_is_an_error_of_its_row() -> None:
    engine = load_engine("fake", spec=spec(max_document_chars=10))
    found = engine.annotate(["Oslo", "Oslo Oslo Oslo", None, "0123456 Oslo"[:10]])
    sentence = "the document has 14 characters; max_document_chars is 10"
    assert dict(found.errors) == {1: sentence}
    assert [None if d is None else len(d) for d in found] == [1, None, None, 0]
    with pytest.raises(RowError, match=sentence):
        load_engine("fake", spec=spec(max_document_chars=10, on_error="fail")).annotate(["Oslo Oslo Oslo"])


def spec(**settings: object) -> EngineSpec:
    return EngineSpec(**settings)  # type: ignore[arg-type]


def test_nothing_to_do() -> None:
    engine = load_engine("fake")
    assert list(engine.annotate([])) == []
    assert list(engine.annotate_stream([])) == []
    assert list(engine.annotate([None, "", " \n"])) == [None, [], []]
    assert engine.stats.windows == 0


def test_strings_of_every_arrow_kind() -> None:
    assert strings(pa.array(["a", None], pa.large_string())) == ["a", None]
    bad = pa.array([b"Oslo \xff Rome", None, b"ok"], pa.binary()).view(pa.string())
    assert strings(bad) == ["Oslo \ufffd Rome", None, "ok"]
    large = pa.array([b"\xff\xfe x"], pa.large_binary()).view(pa.large_string())
    assert strings(large) == ["\ufffd\ufffd x"]
    assert strings(pa.array(["x", "Oslo", None, "y"]).slice(1, 2)) == ["Oslo", None]
    assert strings(pa.array(["a", "b", "a"]).dictionary_encode()) == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("model", "settings", "error", "message"),
    [
        ("no/such/model", {}, PathError, "model 'no/such/model' is neither a shipped model"),
        ("fake", {"window_tokens": 511}, ConfigError, "the model takes at most 510"),
    ],
)
def test_load_engine_refuses(
    model: str, settings: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_engine(model, spec=spec(**settings))


def test_entities_across_windows_come_out_once_and_whole() -> None:
    """An entity longer than the overlap, over several windows, at every place of the text."""
    engine_tokenizer = tokenizer("wordpiece-cased")
    name = "Bank of the Green Delta"
    rules = dict.fromkeys(name.split(), "I-ORG")
    for before in range(12):
        text = "in " * before + name + " in May"
        engine = phrase_engine(engine_tokenizer, rules, window_tokens=8, overlap_tokens=2)
        assert spans(engine, text) == [(3 * before, 3 * before + len(name), "ORG")]
