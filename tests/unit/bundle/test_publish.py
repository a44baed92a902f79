"""Publishing: the manifest is last, digests are those of the disk, a reader never sees half a bundle."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from spark_ner.bundle import FileEntry, Manifest, Variant, open_bundle, publish
from spark_ner.bundle.manifest import read_manifest, sha256_of
from spark_ner.errors import BundleError, LabelError
from tests.fixtures.bundles import TAGS, make_bundle

pytest.importorskip("onnx")
SETTINGS = {"name": "x", "version": "1", "labels": TAGS, "max_tokens": 64}


def test_digests_are_those_of_the_disk(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "tiny", window_tokens=40, overlap_tokens=8, token_feature="letter_case")
    tree = json.loads((bundle.path / "manifest.json").read_text())
    assert sorted(p.name for p in bundle.path.iterdir()) == [
        "manifest.json",
        "model-small.onnx",
        "model.onnx",
        "tokenizer.json",
    ]
    for name, entry in tree["files"].items():
        content = (bundle.path / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    assert (tree["labels"], tree["window_tokens"], tree["token_feature"]) == (list(TAGS), 40, "letter_case")
    assert bundle.digest == hashlib.sha256((bundle.path / "manifest.json").read_bytes()).hexdigest()


def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    assert make_bundle(tmp_path / "a").digest == make_bundle(tmp_path / "b").digest
    assert make_bundle(tmp_path / "c", seed=2).digest != make_bundle(tmp_path / "d").digest


def test_a_crash_while_copying_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path / "tiny")
    sources = {n: tmp_path / "tiny-work" / n for n in ("tokenizer.json", "model.onnx")}

    def crash(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(shutil, "copyfile", crash)
    variant = Variant(runtime="onnx", precision="fp32", files=("model.onnx",))
    with pytest.raises(OSError, match="disk full"):
        publish(bundle.path, variants={"fp32": variant}, sources=sources, **SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match=r"neither manifest.json nor config.json"):
        open_bundle(bundle.path)


def test_files_already_in_place_are_kept(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "tiny")
    sources = {n: bundle.file(n) for n in ("tokenizer.json", "model.onnx")}
    variant = Variant(runtime="onnx", precision="fp32", files=("model.onnx",))
    again = publish(bundle.path, variants={"fp32": variant}, sources=sources, **SETTINGS)  # type: ignore[arg-type]
    assert again.manifest.files["model.onnx"] == bundle.manifest.files["model.onnx"]
    assert list(again.manifest.variants) == ["fp32"]


def test_what_cannot_be_a_bundle_is_not_written(tmp_path: Path) -> None:
    variant = Variant(runtime="onnx", precision="fp32", files=("model.onnx",))
    with pytest.raises(BundleError, match=r"no source for model.onnx, tokenizer.json"):
        publish(tmp_path / "a", variants={"fp32": variant}, sources={}, **SETTINGS)  # type: ignore[arg-type]
    settings = {**SETTINGS, "labels": ("LABEL_0", "LABEL_1")}
    with pytest.raises(LabelError):
        publish(tmp_path / "a", variants={"fp32": variant}, sources={}, **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "a").exists()


def test_a_manifest_survives_the_disk(tmp_path: Path) -> None:
    manifest = Manifest(
        format=1,
        name="é",
        version="2",
        labels=TAGS,
        max_tokens=512,
        variants={
            "int8": Variant(runtime="torch", precision="int8", files=("w",), f1={"dev": 1.5}, words_per_s=9.0)
        },
        files={
            "w": FileEntry(sha256="0" * 64, bytes=3),
            "tokenizer.json": FileEntry(sha256="1" * 64, bytes=4),
        },
        token_feature="letter_case",
        window_tokens=100,
        overlap_tokens=7,
    )
    (tmp_path / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    assert read_manifest(tmp_path) == manifest
    assert len(manifest.digest) == 64


def test_sha256_reads_in_pieces(tmp_path: Path) -> None:
    content = b"0123456789abcdef" * 200_000
    (tmp_path / "f").write_bytes(content)
    assert sha256_of(tmp_path / "f") == hashlib.sha256(content).hexdigest()
