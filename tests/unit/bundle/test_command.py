"""`spark-ner models` says what a bundle holds."""

from __future__ import annotations

from pathlib import Path

from spark_ner.bundle.command import model_lines
from spark_ner.bundle.load import Bundle
from spark_ner.bundle.manifest import FileEntry, Manifest, Variant
from spark_ner.labels import LabelScheme


def test_labels_variants_sizes_and_scores() -> None:
    tags = ("O", "B-PER", "I-PER")
    manifest = Manifest(
        format=1,
        name="tiny",
        version="3",
        labels=tags,
        max_tokens=512,
        variants={"int8": Variant(runtime="onnx", precision="int8", files=("m.onnx",), f1={"wnut": 43.26})},
        files={
            "m.onnx": FileEntry(sha256="0" * 64, bytes=25_040_000),
            "tokenizer.json": FileEntry(sha256="1", bytes=2),
        },
    )
    lines = model_lines(Bundle(Path("/m"), manifest, LabelScheme.from_tags(tags)))
    assert lines[0] == f"tiny 3  (digest {manifest.digest[:12]}, at /m)"
    assert "  labels   PER" in lines
    assert lines[-1] == "  variant  int8: onnx, int8, 25.0 MB; F1: wnut 43.3"
