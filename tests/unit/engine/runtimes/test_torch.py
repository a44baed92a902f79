"""Any Hugging Face token-classification directory, as it is: six families, tiny and random."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_ner.bundle import open_bundle
from spark_ner.engine import Engine, EngineSpec, load_engine
from spark_ner.engine.decode import softmax
from spark_ner.errors import BundleError, ConfigError, DependencyError
from tests.fixtures import corpora
from tests.fixtures.marks import with_torch
from tests.fixtures.models import MODELS, TAGS, edit_config, save_model
from tests.fixtures.tokenizers import tokenizer

if TYPE_CHECKING:
    import torch
    import transformers

pytestmark = with_torch
ONE_THREAD = EngineSpec(threads=1)


def setup_module() -> None:
    """Not when the module is collected."""
    global torch, transformers
    import torch
    import transformers


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of the families, saved on first use."""

    class Lazy(dict[str, Path]):
        def __missing__(self, family: str) -> Path:
            self[family] = save_model(tmp_path_factory.mktemp(family), family)
            return self[family]

    return Lazy()


def texts(n: int = 12) -> list[str]:
    rng = np.random.default_rng(2)
    return [corpora.words(rng, int(k)) for k in rng.integers(1, 9, n)]


@pytest.mark.parametrize("family", MODELS)
def test_a_directory_works_as_it_is(saved: dict[str, Path], family: str) -> None:
    """Tags of a short text are those of transformers itself, read at each word's first token."""
    engine = load_engine(saved[family], spec=ONE_THREAD)
    tokenizer_family, _, max_tokens = MODELS[family]
    assert engine.window_tokens == max_tokens - 2
    model = transformers.AutoModelForTokenClassification.from_pretrained(saved[family])
    for text in ("Ada Novak met Lars in Oslo", "Ada Novak met Lars in Oslo,", "Kyoto"):
        tokens = tokenizer(tokenizer_family).encode([text])
        bos, eos = tokenizer(tokenizer_family).prefix_ids, tokenizer(tokenizer_family).suffix_ids
        ids = torch.tensor(
            [[*bos, *tokens.ids.tolist(), *eos]]
        )  # no padding here; the engine pads one of two
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, len(bos) :].numpy()
        chances = softmax(logits[tokens.word.nonzero()[0]])
        tagged = list(zip(tokens.start[tokens.word].tolist(), chances.argmax(axis=1).tolist(), strict=True))
        (entities,) = engine.annotate([text])
        assert entities is not None
        of_word = {s: e for s, _ in tagged for e in entities if e.start <= s < e.end}
        assert {s: e.label for s, e in of_word.items()} == {
            s: TAGS[t][2:] for s, t in tagged if TAGS[t] != "O"
        }
        for entity in entities:
            own = [c.max() for c, (s, _) in zip(chances, tagged, strict=True) if of_word.get(s) == entity]
            assert entity.score == pytest.approx(float(np.mean(own)), abs=1e-4)
    assert engine.stats.entities >= 3
    assert engine.stats.padded_tokens > engine.stats.tokens
    assert engine.runtime.name == "torch/float32"


@pytest.mark.parametrize("family", MODELS)
def test_documents_longer_than_the_model_are_windowed(saved: dict[str, Path], family: str) -> None:
    engine = load_engine(saved[family], spec=ONE_THREAD)
    long = " ".join(texts(60))
    found = engine.annotate([long, "Oslo"])
    assert dict(found.errors) == {}
    assert engine.stats.windows > 10
    assert found[0] is not None
    assert found[0][-1].end > len(long) * 0.9  # read to the end
    assert all(long[e.start : e.end] == e.text for e in found[0])


@pytest.mark.parametrize("family", MODELS)
def test_neighbours_and_padding_change_nothing(saved: dict[str, Path], family: str) -> None:
    engine = load_engine(saved[family], spec=ONE_THREAD)
    documents = texts(25)
    together = list(engine.annotate(documents))
    alone = [engine.annotate([d])[0] for d in documents]
    for mine, theirs in zip(together, alone, strict=True):
        assert [(e.start, e.end, e.label) for e in mine or []] == [
            (e.start, e.end, e.label) for e in theirs or []
        ]
        np.testing.assert_allclose([e.score for e in mine or []], [e.score for e in theirs or []], atol=1e-5)
    assert sum(len(d or []) for d in alone) > len(documents)


@pytest.mark.parametrize(
    ("family", "changes", "limit"),
    [
        ("bert", {}, 64),
        ("roberta", {}, 64),  # 66 rows less those up to the padding id 1
        ("roberta", {"pad_token_id": None}, 64),  # transformers' own default is 1
        ("xlm-roberta", {}, 64),
        ("modernbert", {}, 64),
    ],
)
def test_the_limit_is_that_of_the_position_table(
    saved: dict[str, Path], family: str, changes: dict[str, object], limit: int, tmp_path: Path
) -> None:
    """C50: not the tokenizer's model_max_length, which often names none (1e30)."""
    for file in saved[family].iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text((saved[family] / "config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    edit_config(tmp_path, **changes)
    assert open_bundle(tmp_path).manifest.max_tokens == limit
    engine = load_engine(tmp_path, spec=EngineSpec(threads=1, window_tokens=limit - 2, overlap_tokens=0))
    found = engine.annotate(["in " * 2_000 + "Oslo"])
    assert dict(found.errors) == {}
    with pytest.raises(ConfigError, match=f"takes at most {limit - 2}"):
        load_engine(tmp_path, spec=EngineSpec(window_tokens=limit - 1))


def test_distilbert_is_given_no_token_types(saved: dict[str, Path]) -> None:
    """Its forward takes none; the letter case is a feature of bundles that say so."""
    engine = load_engine(saved["distilbert"], spec=ONE_THREAD)
    assert list(engine.annotate(["Oslo"]).errors) == []
    assert open_bundle(saved["distilbert"]).manifest.token_feature == "none"


def test_token_types_are_given_where_the_model_was_trained_on_letter_case(tmp_path: Path) -> None:
    save_model(tmp_path, "bert")
    plain = load_engine(tmp_path, spec=ONE_THREAD)
    edit_config(tmp_path, spark_ner_token_feature="letter_case")
    assert open_bundle(tmp_path).manifest.token_feature == "letter_case"
    seen: list[dict[str, torch.Tensor]] = []
    engine = load_engine(tmp_path, spec=ONE_THREAD)
    for each in (plain, engine):
        model = each.runtime._model  # type: ignore[attr-defined]
        model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs), with_kwargs=True)
        each.annotate(["in"])
    assert "token_type_ids" not in seen[0]
    assert seen[1]["token_type_ids"].tolist()[0][:3] == [0, 2, 0]


def test_without_torch_the_error_names_the_extra(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = saved["bert"]
    for missing in ("torch", "transformers"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(DependencyError, match=r"pip install 'spark-ner\[torch\]'") as caught:
                load_engine(directory)
            assert isinstance(caught.value, ImportError)
            assert missing in str(caught.value)


def test_remote_code_is_refused(tmp_path: Path) -> None:
    """A config that points to code of the directory's own: an error, and the code does not run."""
    save_model(tmp_path, "bert")
    flag = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(flag)!r}, 'w').close()\n")
    edit_config(tmp_path, auto_map={"AutoConfig": "evil.C", "AutoModelForTokenClassification": "evil.M"})
    with pytest.raises(BundleError, match="auto_map"):
        load_engine(tmp_path, spec=ONE_THREAD)
    edit_config(tmp_path, model_type="unheard-of", architectures=["Evil"])
    with pytest.raises(BundleError):
        load_engine(tmp_path, spec=ONE_THREAD)
    assert not flag.exists()


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_model(tmp_path, "bert")
    (tmp_path / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00notjson!")
    with pytest.raises(BundleError, match="cannot load"):
        load_engine(tmp_path, spec=ONE_THREAD)


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    """A base model saved without its classifier would get a random one, and random entities."""
    save_model(tmp_path, "bert")
    base = transformers.AutoModel.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    base.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BundleError, match="classifier"):
        load_engine(tmp_path, spec=ONE_THREAD)


def engine_labels(directory: Path) -> tuple[str, ...]:
    engine: Engine = load_engine(directory, spec=ONE_THREAD)
    return engine.labels


def test_labels_are_those_of_the_config(saved: dict[str, Path]) -> None:
    assert engine_labels(saved["bert"]) == ("PER", "LOC", "ORG")
