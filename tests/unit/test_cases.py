"""Inputs that broke other tools (the cases of the project), each with its right answer; ids are in the names.

The tagger is a stub that gives the named tag to the named words. Cases on Delta, streaming, Connect and
training are tests of their own layers. Where the answer was a matter of choice, the docstring has the ruling.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_ner.config import from_dict
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import ConfigError, LabelError
from spark_ner.labels import LabelScheme
from spark_ner.types import Entities
from tests.fixtures import corpora
from tests.fixtures.bundles import make_bundle
from tests.fixtures.models import DEFAULT_BUNDLE
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

Span = tuple[int, int, str]

every_family = pytest.mark.parametrize("family", FAMILIES)


def per(*words: str) -> dict[str, str]:
    return dict.fromkeys(words, "B-PER")


def loc(*words: str) -> dict[str, str]:
    return dict.fromkeys(words, "B-LOC")


def org(*words: str) -> dict[str, str]:
    return dict.fromkeys(words, "B-ORG")


# --- offsets and Unicode --------------------------------------------------------------------------

OFFSETS: list[tuple[str, str, Mapping[str, str], list[Span]]] = [
    (
        "C01 zero-width characters",
        "My guide is \u200c Ada Novak, based in \u200c Oslo.",
        {**per("Ada"), "Novak": "I-PER", **loc("Oslo")},
        [(14, 23, "PER"), (36, 40, "LOC")],
    ),
    (
        "C02 emoji outside the BMP",
        "Hi 😀 I am Mina in Kyoto 🗼 with Lars",
        {**per("Mina", "Lars"), **loc("Kyoto")},
        [(10, 14, "PER"), (18, 23, "LOC"), (31, 35, "PER")],
    ),
    (
        "C04 blanks of every kind",
        "   Kyoto  and\r\nOslo\t\tRome ",
        loc("Kyoto", "Oslo", "Rome"),
        [(3, 8, "LOC"), (15, 19, "LOC"), (21, 25, "LOC")],
    ),
    (
        "C05 normalization makes text longer",
        "La Société\u202f\u2026\u2026\u2026 Acme ½ Turin",
        {**org("Acme"), **loc("Turin")},
        [(15, 19, "ORG"), (22, 27, "LOC")],
    ),
    (
        "C07 U+0130 lower-cased",
        "İzmir, DİYARBAKIR and Ankara",
        loc("İzmir", "DİYARBAKIR", "Ankara"),
        [(0, 5, "LOC"), (7, 17, "LOC"), (22, 28, "LOC")],
    ),
    (
        "C08 blanks inside token ranges",
        "call  AG now in Bern",
        {**org("AG"), **loc("Bern")},
        [(6, 8, "ORG"), (16, 20, "LOC")],
    ),
    (
        "C16 words divided by other than blanks",
        "Paris,Rome;Oslo\tBern\xa0Lyon",
        loc("Paris", "Rome", "Oslo", "Bern", "Lyon"),
        [(0, 5, "LOC"), (6, 10, "LOC"), (11, 15, "LOC"), (16, 20, "LOC"), (21, 25, "LOC")],
    ),
]


@every_family
@pytest.mark.parametrize(("text", "rules", "expected"), [c[1:] for c in OFFSETS], ids=[c[0] for c in OFFSETS])
def test_offsets(family: str, text: str, rules: Mapping[str, str], expected: list[Span]) -> None:
    assert spans(phrase_engine(tokenizer(family), rules), text) == expected


@pytest.mark.parametrize("name", ["C01", "C02", "C04", "C05", "C08", "C16"])
def test_offsets_of_the_shipped_fake(name: str) -> None:
    """The fake that ships knows the cases' names; ORG AG and Acme as far as its gazetteer goes."""
    _, text, _, expected = next(c for c in OFFSETS if c[0].startswith(name))
    known = [s for s in expected if text[s[0] : s[1]] != "AG"]
    assert spans(load_engine("fake"), text) == known


@pytest.mark.parametrize("family", ["wordpiece-uncased", "wordpiece-cased", "unigram", "unigram-split"])
def test_c17_script_without_blanks_next_to_latin(family: str) -> None:
    """Ruling: in scripts written without blanks each token is a word: a tag a character is one a word."""
    text = "東京と大阪 google app"
    rules: dict[str, str | Sequence[str]] = {
        "東京": ["B-LOC", "I-LOC"],
        "大阪": ["B-LOC", "I-LOC"],
        **org("google"),
    }
    assert spans(phrase_engine(tokenizer(family), rules), text) == [
        (0, 2, "LOC"),
        (3, 5, "LOC"),
        (6, 12, "ORG"),
    ]


# --- long documents -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["wordpiece-uncased", "byte-bpe", "unigram"])
def test_c10_nothing_past_the_model_limit_is_dropped(family: str) -> None:
    text = "lorem " * 5_000 + "Kyoto"
    engine = phrase_engine(tokenizer(family), loc("Kyoto"))
    assert spans(engine, text) == [(30_000, 30_005, "LOC")]
    # Ruling: a configured cap never cuts; the row is an error that says how long it is.
    capped = phrase_engine(tokenizer(family), loc("Kyoto"), max_document_chars=10_000)
    found = capped.annotate([text])
    assert found[0] is None
    assert found.errors[0] == "the document has 30005 characters; max_document_chars is 10000"


@every_family
@pytest.mark.parametrize(("window", "overlap"), [(4, 2), (10, 3), (16, 5), (64, 1)])
def test_c11_no_window_begins_in_mid_word(family: str, window: int, overlap: int) -> None:
    """Windows smaller than the word itself: a word is tagged by its first token."""
    text = "Brass lanterns shone over Ghentbrugge and Wetteren"
    engine_tokenizer = tokenizer(family)
    heads = {w: engine_tokenizer.encode([f"x {w}"]) for w in ("Ghentbrugge", "Wetteren")}
    head_ids = {int(t.ids[np.flatnonzero(t.word)[1]]) for t in heads.values()}

    class HeadTagger:
        """B-LOC on the two names' first tokens after a blank; O elsewhere."""

        name = "heads"

        def scores(self, batch: object) -> np.ndarray:
            chosen = np.isin(batch.ids, list(head_ids)).astype(int) * IOB2.index("B-LOC")  # type: ignore[attr-defined]
            return (np.eye(len(IOB2), dtype=np.float32) * 8)[chosen]

    whole = spans(engine_with(engine_tokenizer, HeadTagger()), text)
    assert {(26, 37, "LOC"), (42, 50, "LOC")} <= set(whole)
    engine = engine_with(engine_tokenizer, HeadTagger(), window_tokens=window, overlap_tokens=overlap)
    assert spans(engine, text) == whole


@every_family
def test_c13_repeats_stay_and_overlap_duplicates_go(family: str) -> None:
    text = "one two three four five six Lagos eight nine ten eleven twelve Lagos end"
    for window in (6, 8, 13, 22, 39):
        engine = phrase_engine(
            tokenizer(family), loc("Lagos"), window_tokens=window, overlap_tokens=min(window - 1, 5)
        )
        if engine_fits(family, window, "Lagos"):
            assert spans(engine, text) == [(28, 33, "LOC"), (63, 68, "LOC")], window


def engine_fits(family: str, window: int, word: str) -> bool:
    """Whether the stub can see a word whole and its neighbours within the overlap."""
    return len(tokenizer(family).encode([f" {word}"])) <= min(window - 1, 5)


def test_c13_windows_of_eight_words() -> None:
    text = "one two three four five six Lagos eight nine ten eleven twelve Lagos end"
    engine = phrase_engine(by_words(text), loc("Lagos"), window_tokens=8, overlap_tokens=3)
    assert spans(engine, text) == [(28, 33, "LOC"), (63, 68, "LOC")]
    assert engine.stats.windows > 1


def test_c14_an_entity_longer_than_the_overlap_comes_out_whole() -> None:
    text = "a b c d Bank of the Green Delta opened in May"
    rules = dict.fromkeys(("Bank", "of", "the", "Green", "Delta"), "I-ORG")
    engine = phrase_engine(by_words(text), rules, window_tokens=8, overlap_tokens=2)
    assert spans(engine, text) == [(8, 31, "ORG")]
    assert engine.stats.windows == 2


def by_words(text: str) -> Tokenizer:
    """A tokenizer of one token a word, for windows counted in words."""
    import tokenizers as rust

    words = {w: i for i, w in enumerate(dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", *text.split(), "x"]))}
    tokenizer_ = rust.Tokenizer(rust.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer_.pre_tokenizer = rust.pre_tokenizers.BertPreTokenizer()
    tokenizer_.post_processor = rust.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return Tokenizer(tokenizer_)


# --- labels ---------------------------------------------------------------------------------------


@every_family
def test_c19_a_label_with_hyphens(family: str) -> None:
    """Ruling: `19%` is two words for every pre-tokenizer here, so the tags are B- and I-."""
    tags = ("O", "B-tax-percent", "I-tax-percent", "B-tax-amount", "I-tax-amount")
    rules: dict[str, str | Sequence[str]] = {"19%": ["B-tax-percent", "I-tax-percent"]}
    assert spans(phrase_engine(tokenizer(family), rules, tags), "VAT 19%") == [(4, 7, "tax-percent")]


@pytest.mark.parametrize("scheme", ["BIOES", "BILOU"])
def test_c20_bioes_and_bilou(scheme: str) -> None:
    end, single = ("E", "S") if scheme == "BIOES" else ("L", "U")
    text = "Ana Maria Lopes left Novo Faro Alta Beja Evora"
    words = [f"B-PER I-PER {end}-PER O B-LOC {end}-LOC B-LOC {end}-LOC {single}-LOC"][0].split()
    tags = ("O", *(f"{p}-{t}" for t in ("PER", "LOC") for p in ("B", "I", end, single)))
    rules = dict(zip(text.split(), words, strict=True))
    found = spans(phrase_engine(by_words(text), rules, tags), text)
    assert found == [(0, 15, "PER"), (21, 30, "LOC"), (31, 40, "LOC"), (41, 46, "LOC")]


def test_c20_an_unknown_prefix_is_an_error_at_load_time() -> None:
    with pytest.raises(LabelError, match="'Q-LOC' has no known prefix"):
        LabelScheme.from_tags(("O", "B-PER", "Q-LOC"))


def test_c22_a_type_called_o() -> None:
    tags = ("O", "B-O", "I-O", "B-P", "I-P")
    assert spans(phrase_engine(by_words("Titania sank"), {"Titania": "B-O"}, tags), "Titania sank") == [
        (0, 7, "O")
    ]


def test_c23_label_ids_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """The order is stored in the bundle; two hash seeds read the same map, and write the same tag list."""
    bundle = make_bundle(tmp_path / "tiny")
    program = (
        "import sys; from spark_ner.bundle import open_bundle; from spark_ner.labels import iob2_tags; "
        "from spark_ner.engine.fake import GAZETTEER, fake_labels; b = open_bundle(sys.argv[1]); "
        "print(b.scheme.tags, b.scheme.types, b.digest, iob2_tags(['LOC', 'PER']), fake_labels(GAZETTEER))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(bundle.path)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    (output,) = outputs
    assert "('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC') ('PER', 'LOC')" in output
    assert "('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')" in output


# --- nulls and empties ----------------------------------------------------------------------------


@every_family
def test_c25_texts_that_yield_no_token(family: str) -> None:
    engine = phrase_engine(tokenizer(family), loc("Oslo"))
    found = engine.annotate(["\u200b\u200d\ufeff", "\x00\x01", "Oslo"])
    assert [[(e.start, e.end, e.label) for e in d or []] for d in found] == [[], [], [(0, 4, "LOC")]]
    assert found.valid.all()
    assert np.isfinite(found.score).all()


def test_c26_nothing_to_tag() -> None:
    engine = load_engine("fake")
    nulls, none = engine.annotate_stream(
        [pa.array([None, None, None], pa.string()), pa.array([], pa.string())]
    )
    assert list(nulls) == [None, None, None]
    assert list(none) == []
    assert nulls.to_arrow().type == none.to_arrow().type


# --- big rows, memory, batching -------------------------------------------------------------------


def test_c28_a_long_document_scaled() -> None:
    text = "ab " * 60_000 + "Lima"
    assert spans(load_engine("fake"), text) == [(180_000, 180_004, "LOC")]


def test_c31_batched_equals_one_by_one() -> None:
    rng = np.random.default_rng(5)
    texts = [corpora.words(rng, n) for n in (3, 40, 7, 1, 25, 2, 9)]
    alone = [table_engine(tokenizer("unigram")).annotate([t])[0] for t in texts]
    assert sum(len(a or []) for a in alone) > 20
    for batch_tokens in (1, 16, 64, 128, 512, 8_192):
        for size in (1, 2, 3, 4, 7, 64):
            engine = table_engine(tokenizer("unigram"), batch_tokens=batch_tokens, lookahead_tokens=size * 10)
            arrays = [pa.array(texts[i : i + size]) for i in range(0, len(texts), size)]
            found = [d for entities in engine.annotate_stream(arrays) for d in entities]
            assert found == alone


def test_c32_one_long_text_does_not_make_short_ones_pay() -> None:
    rng = np.random.default_rng(6)
    texts = [corpora.words(rng, 5) for _ in range(63)] + [corpora.words(rng, 20_000)]
    recorder = Recorder(TableRuntime(400, len(IOB2)))
    engine = engine_with(tokenizer("wordpiece-cased"), recorder)
    assert all(d is not None for d in engine.annotate(texts))
    real, computed = (
        sum(int(b.mask.sum()) for b in recorder.batches),
        sum(b.mask.size for b in recorder.batches),
    )
    assert computed < 1.06 * real  # the case asks for twice
    assert max(b.mask.size for b in recorder.batches) <= 1_024


# --- determinism ----------------------------------------------------------------------------------


def check_c34(engine_model: str | Path) -> None:
    sentence = "Ada Novak met the president in Oslo yesterday."
    engine = load_engine(engine_model)
    rng = np.random.default_rng(8)
    alone = engine.annotate([sentence])[0]
    for neighbours in (
        [corpora.words(rng, 400)],
        [corpora.words(rng, int(n)) for n in rng.integers(5, 12, 31)],
    ):
        beside = engine.annotate([*neighbours, sentence])[len(neighbours)]
        assert [(e.start, e.end, e.label) for e in beside or []] == [
            (e.start, e.end, e.label) for e in alone or []
        ]
        np.testing.assert_allclose([e.score for e in beside or []], [e.score for e in alone or []], atol=1e-4)


def test_c34_neighbours_change_nothing(tmp_path: Path) -> None:
    check_c34(make_bundle(tmp_path / "tiny").path)


@pytest.mark.skipif(not DEFAULT_BUNDLE.is_dir(), reason="the default bundle is not built")
def test_c34_neighbours_change_nothing_for_the_quantized_model() -> None:
    """Tolerance of scores: 1e-4; of spans and labels: none."""
    check_c34("default")


@pytest.mark.parametrize("family", ["wordpiece-cased", "byte-bpe"])
def test_c35_earlier_documents_change_nothing(family: str) -> None:
    one, two = "Amber left the pier.", "an amber ring"
    engine = table_engine(tokenizer(family), weight_of_o=-2)
    first = {one: engine.annotate([one])[0], two: engine.annotate([two])[0]}
    assert all(first.values())
    for texts in ([one, two], [two, one], [one, one, two, two]):
        assert list(engine.annotate(texts)) == [first[t] for t in texts]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: engine.annotate([one, two]), range(20)):
            assert list(found) == [first[one], first[two]]


# --- strings that are no text ---------------------------------------------------------------------


def test_c40_bytes_that_are_not_utf8() -> None:
    """Ruling: a bad byte counts as one U+FFFD, and so does a lone surrogate; the row is annotated."""
    column = pa.array([bytes.fromhex("4F736C6F20FF20526F6D65"), b"Lima"], pa.binary()).view(pa.string())
    (found,) = load_engine("fake").annotate_stream([column])
    assert [[(e.start, e.end, e.label) for e in d or []] for d in found] == [
        [(0, 4, "LOC"), (7, 11, "LOC")],
        [(0, 4, "LOC")],
    ]
    found.to_arrow().validate(full=True)


@every_family
def test_c40_a_lone_surrogate(family: str) -> None:
    engine = phrase_engine(tokenizer(family), loc("Turin"))
    found: Entities = engine.annotate(["ok \ud800 Turin", "Turin"])
    assert [[(e.start, e.end) for e in d or []] for d in found] == [[(5, 10)], [(0, 5)]]
    assert found.to_arrow().to_pylist()[0][0]["text"] == "Turin"


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "same"), [("wordpiece-cased", False), ("wordpiece-uncased", True)])
def test_c53_letter_case_does_not_hang_on_the_tokenizer_settings(
    tmp_path: Path, family: str, same: bool
) -> None:
    """Ruling: tokenizer.json alone decides (it came with the weights); other settings are not read."""
    bundle = make_bundle(tmp_path / "tiny", family=family)
    (bundle.path / "tokenizer_config.json").write_text("{}")
    ids = Tokenizer.from_file(bundle.file("tokenizer.json")).encode(["Oslo", "oslo"])
    upper, lower = (ids.ids[ids.offsets[i] : ids.offsets[i + 1]].tolist() for i in (0, 1))
    assert (upper == lower) is same
    assert upper == tokenizer(family).encode(["Oslo"]).ids.tolist()


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window_tokens": 510, "overlap_tokens": 510}, "overlap_tokens is 510; .* at most 509"),
        ({"window_tokens": 510, "overlap_tokens": 512}, "overlap_tokens is 512; .* at most 509"),
        ({"window_tokens": 512, "overlap_tokens": 510}, "takes at most 510 .* overlap of at most 509"),
        ({"overlap_tokens": -1}, "overlap_tokens must be at least 0, got -1"),
        ({"overlap_tokens": 254}, "overlap_tokens is 254; with a window of 254 it can be at most 253"),
    ],
)
def test_c65_an_overlap_as_large_as_the_window_is_refused(settings: dict[str, int], message: str) -> None:
    """Ruling: special tokens are not counted, so the case's window of 512 is window_tokens = 510."""
    with pytest.raises(ConfigError, match=message):
        load_engine("fake", spec=EngineSpec(**settings))  # type: ignore[arg-type]
    highest = load_engine("fake", spec=EngineSpec(window_tokens=510, overlap_tokens=509))
    assert spans(highest, "Oslo") == [(0, 4, "LOC")]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"windw": 256, "overlap": 32}, "engine: unknown key 'windw'; did you mean 'window_tokens'?"),
        ({"overlap": 32}, "engine: unknown key 'overlap'; did you mean 'overlap_tokens'?"),
        ({"windw_tokens": 256}, "engine: unknown key 'windw_tokens'; did you mean 'window_tokens'?"),
    ],
)
def test_c67_a_misspelt_setting_is_refused(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(EngineSpec, tree, where="engine")
    assert str(caught.value) == message


# --- security -------------------------------------------------------------------------------------


def test_c68_no_message_holds_the_text(caplog: pytest.LogCaptureFixture) -> None:
    """A cap, a failing model and a failing tokenizer: the marker is in no sentence and no log line."""
    caplog.set_level(logging.DEBUG)
    marker = "XQ-CANARY-7"

    class Raises:
        name = "raises"

        def scores(self, batch: object) -> np.ndarray:
            raise ValueError(f"cannot do {marker}")

    engine = engine_with(tokenizer("byte-bpe"), Raises(), max_document_chars=50)
    found = engine.annotate([f"{marker} one", f"{marker} " * 9])
    assert len(found.errors) == 2
    assert marker not in json.dumps(dict(found.errors)) + caplog.text
