"""Opening a model directory: each byte is verified, what is refused is named, and nothing of it runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ner.bundle import Bundle, locate, open_bundle
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.errors import BundleError, ConfigError, LabelError, PathError
from tests.fixtures.bundles import TAGS, make_bundle
from tests.fixtures.models import edit_config
from tests.fixtures.tokenizers import rust_tokenizer

pytest.importorskip("onnx")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "tiny")


def change_manifest(directory: Path, change: Callable[[dict[str, object]], object]) -> None:
    file = directory / "manifest.json"
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def test_open_and_annotate(bundle: Bundle) -> None:
    opened = open_bundle(bundle.path)
    assert opened == bundle
    assert opened.scheme.tags == TAGS
    engine = load_engine(bundle.path)
    assert engine.labels == ("PER", "LOC")
    assert (engine.window_tokens, engine.overlap_tokens) == (62, 15)
    text = "Ada Novak met Lars in Oslo"
    (entities,) = engine.annotate([text])
    assert entities
    assert all(text[e.start : e.end] == e.text for e in entities)


@pytest.mark.parametrize("name", ["model.onnx", "model-small.onnx", "tokenizer.json"])
def test_one_changed_byte_is_noticed(bundle: Bundle, name: str) -> None:
    file = bundle.file(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        BundleError, match=rf"{name} was changed: sha256 \w{{16}}…, the manifest says \w{{16}}…"
    ):
        load_engine(bundle.path)


def test_a_file_of_another_size_is_noticed(bundle: Bundle) -> None:
    file = bundle.file("model.onnx")
    n_bytes = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BundleError, match=f"model.onnx has {n_bytes - 1} bytes, the manifest says {n_bytes}"):
        open_bundle(bundle.path)


def test_a_missing_file_is_noticed(bundle: Bundle) -> None:
    bundle.file("tokenizer.json").unlink()
    with pytest.raises(BundleError, match=r"the bundle is incomplete: .*tokenizer.json is missing"):
        open_bundle(bundle.path)


def test_only_the_variants_asked_for_are_checked(bundle: Bundle) -> None:
    bundle.file("model.onnx").unlink()
    assert open_bundle(bundle.path, variants=["int8"]).digest == bundle.digest
    with pytest.raises(BundleError, match=r"model.onnx is missing"):
        open_bundle(bundle.path, variants=["fp32"])


@pytest.mark.parametrize("name", ["../secret.onnx", "/etc/passwd", "a/../../secret.onnx"])
def test_a_path_out_of_the_bundle_is_refused(bundle: Bundle, name: str) -> None:
    def change(tree: dict) -> None:  # type: ignore[type-arg]
        tree["files"][name] = tree["files"]["model.onnx"]
        tree["variants"]["fp32"]["files"] = [name]

    change_manifest(bundle.path, change)
    with pytest.raises(BundleError, match="names a file outside the bundle"):
        open_bundle(bundle.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(format=2), "has format 2; this version reads format 1"),
        (lambda t: t.update(labls=1), "unknown key 'labls'; did you mean 'labels'?"),
        (lambda t: t.pop("labels"), "missing key labels"),
        (lambda t: t["files"].pop("model.onnx"), "names model.onnx without a digest"),
        (lambda t: t["files"].pop("tokenizer.json"), "names tokenizer.json without a digest"),
        (lambda t: t.update(max_tokens="64"), "max_tokens: int wanted, got '64'"),
        (lambda t: t["variants"]["fp32"].update(runtime="pickle"), "'pickle' is not one of 'onnx', 'torch'"),
        (lambda t: t.update(labels=["LABEL_0", "LABEL_1"]), "its 2 classes are called LABEL_0"),
        (lambda t: t.update(labels=["O", "B-PER", "Z-PER"]), "'Z-PER' has no known prefix"),
        (lambda t: t.update(variants={}), "has no variant"),
    ],
)
def test_a_manifest_that_is_none_is_refused(
    bundle: Bundle, change: Callable[[dict], object], message: str
) -> None:  # type: ignore[type-arg]
    change_manifest(bundle.path, change)
    with pytest.raises(BundleError) as caught:
        load_engine(bundle.path)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_a_manifest_that_is_no_json_is_refused(bundle: Bundle, content: str) -> None:
    (bundle.path / "manifest.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BundleError, match="is not a manifest"):
        open_bundle(bundle.path)


def test_choose(bundle: Bundle) -> None:
    assert bundle.choose()[0] == "int8"  # the smaller one
    assert bundle.choose(variant="fp32")[1].f1 == {"dev": 50.0}
    assert bundle.choose(runtime="onnx", variant="int8")[0] == "int8"
    with pytest.raises(BundleError, match=r"bundle tiny has no variant 'int9'; did you mean 'int8'\?"):
        bundle.choose(variant="int9")
    with pytest.raises(BundleError, match=r"no variant for runtime 'torch'; it has: .*fp32 \(onnx\)"):
        bundle.choose(runtime="torch")
    with pytest.raises(BundleError, match="variant 'int8' is computed by onnx, not torch"):
        bundle.choose(runtime="torch", variant="int8")
    with pytest.raises(ConfigError, match="runtime 'fake' goes with model 'fake'"):
        load_engine(bundle.path, spec=EngineSpec(runtime="fake"))


def test_locate(tmp_path: Path) -> None:
    assert locate(tmp_path) == tmp_path
    assert locate("default").parts[-3:] == ("bundle", "models", "default")
    with pytest.raises(
        PathError, match=r"neither a shipped model \(default, fake\) nor a directory"
    ) as caught:
        locate(tmp_path / "absent")
    assert isinstance(caught.value, FileNotFoundError)


# --- Hugging Face directories, without torch ------------------------------------------------------


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, flag: Path) -> None:
        self._flag = str(flag)

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self._flag, "w")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A Hugging Face directory whose weights are never read by these tests."""
    config = {
        "model_type": "bert",
        "max_position_embeddings": 512,
        "id2label": {str(i): t for i, t in enumerate(TAGS)},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    rust_tokenizer("wordpiece-cased").save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_hugging_face_directory(directory: Path) -> None:
    opened = open_bundle(directory)
    manifest = opened.manifest
    assert (manifest.max_tokens, manifest.labels, manifest.token_feature) == (512, TAGS, "none")
    assert opened.choose()[1].runtime == "torch"
    assert set(manifest.files) == {"config.json", "model.safetensors", "tokenizer.json"}
    digest = opened.digest
    (directory / "model.safetensors").write_bytes(b"weightz")
    assert open_bundle(directory).digest != digest


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl"])
def test_c71_a_directory_with_pickled_weights_only_is_refused_and_nothing_runs(
    directory: Path, name: str
) -> None:
    """Ruling: refused by default, without a switch."""
    flag = directory / "flag"
    (directory / "model.safetensors").unlink()
    (directory / name).write_bytes(pickle.dumps(Evil(flag)))
    with pytest.raises(BundleError, match=rf"has only {name}, which can run code .* safetensors are wanted"):
        load_engine(directory)
    assert not flag.exists()
    pickle.loads((directory / name).read_bytes()).close()
    assert flag.exists()  # the pickle would have done it


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": None}, "has no id2label"),
        ({"id2label": {}}, "has no id2label"),
        ({"id2label": {"0": "O", "2": "B-PER"}}, r"id2label skips ids; got \[0, 2\]"),
        ({"id2label": {"a": "O"}}, "the ids of id2label are no numbers: a"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, "its 2 classes are called LABEL_0"),
        ({"id2label": {"0": "O", "1": "B-PER", "2": "Q-PER"}}, "'Q-PER' has no known prefix"),
        ({"auto_map": {"AutoModel": "evil.M"}}, r"names code of its own \(auto_map\)"),
    ],
)
def test_a_config_that_will_not_do_is_refused(
    directory: Path, changes: dict[str, object], message: str
) -> None:
    edit_config(directory, **changes)
    with pytest.raises(BundleError, match=message) as caught:
        open_bundle(directory)
    assert isinstance(caught.value, LabelError) == ("LABEL_0" in message or "prefix" in message)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "is no model: it has neither manifest.json nor config.json"),
        ("config.json", "{", "is not JSON"),
        ("config.json", "[]", "an object was wanted"),
        ("model.safetensors", None, "has no weights; safetensors are wanted"),
        ("tokenizer.json", None, "has no tokenizer.json: a fast tokenizer is needed"),
    ],
)
def test_a_directory_that_lacks_a_part_is_refused(
    directory: Path, name: str, content: str | None, message: str
) -> None:
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(content)
    with pytest.raises(BundleError, match=message):
        open_bundle(directory)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 0}, 513),
        ({"model_type": "camembert", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "modernbert", "max_position_embeddings": 8192, "pad_token_id": 50283}, 8192),
        ({"model_type": "gpt2", "max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"model_type": "xlnet", "max_position_embeddings": None}, 512),
    ],
)
def test_c50_the_limit_comes_from_the_position_table(
    directory: Path, changes: dict[str, object], limit: int
) -> None:
    (directory / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    edit_config(directory, **changes)
    assert open_bundle(directory).manifest.max_tokens == limit
