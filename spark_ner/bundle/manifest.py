"""The manifest of a bundle: labels, tokenizer, windows, and each variant's files, digests and measured F1."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from spark_ner.config import from_dict
from spark_ner.errors import BundleError, ConfigError

MANIFEST_NAME = "manifest.json"
FORMAT = 1
WINDOW_TOKENS = 254  # 256 with BERT's special tokens: a bucket
OVERLAP_TOKENS = 64
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Digest and size of one file of the bundle."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One set of weights: what computes it, its files, and what was measured of it."""

    runtime: Literal["onnx", "torch"]
    precision: str
    files: tuple[str, ...]
    f1: Mapping[str, float] = field(default_factory=dict)  # strict span F1 by test set, 0-100
    words_per_s: float = 0.0  # one core, for sizing splits before anything was measured


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A model directory's table of contents; `files` covers every file a worker reads."""

    format: int
    name: str
    version: str
    labels: tuple[str, ...]
    max_tokens: int  # the model's length with special tokens
    variants: Mapping[str, Variant]
    files: Mapping[str, FileEntry]
    tokenizer: str = "tokenizer.json"
    token_feature: Literal["none", "letter_case"] = "none"
    window_tokens: int = WINDOW_TOKENS
    overlap_tokens: int = OVERLAP_TOKENS

    def to_json(self) -> str:
        """Canonical text: equal manifests give equal text."""
        return json.dumps(asdict(self), sort_keys=True, indent=1, ensure_ascii=False) + "\n"

    @property
    def digest(self) -> str:
        """sha256 of the canonical text; it covers every file through `files`."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def read_manifest(directory: Path) -> Manifest:
    """Parse `manifest.json`; BundleError says what is wrong with it."""
    file = directory / MANIFEST_NAME
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(tree, dict):
            raise BundleError(f"{file} is not a manifest: an object was wanted")
        manifest = from_dict(Manifest, tree, where=MANIFEST_NAME)
    except (json.JSONDecodeError, UnicodeDecodeError, ConfigError) as error:
        raise BundleError(f"{file} is not a manifest: {error}") from None
    if manifest.format != FORMAT:
        raise BundleError(f"{file} has format {manifest.format}; this version reads format {FORMAT}")
    for name in (manifest.tokenizer, *(f for v in manifest.variants.values() for f in v.files)):
        if name not in manifest.files:
            raise BundleError(f"{file} names {name} without a digest")
    for name in manifest.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BundleError(f"{file} names a file outside the bundle: {name}")
    return manifest


def sha256_of(file: Path) -> str:
    """Digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(_CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()
