"""Open a model directory: a bundle with a manifest, or a plain Hugging Face token-classification directory.

Only safetensors and ONNX weights are ever read; a directory whose weights are pickles is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from spark_ner.bundle.manifest import (
    FORMAT,
    MANIFEST_NAME,
    OVERLAP_TOKENS,
    WINDOW_TOKENS,
    FileEntry,
    Manifest,
    Variant,
    read_manifest,
    sha256_of,
)
from spark_ner.config import nearest
from spark_ner.errors import BundleError, PathError
from spark_ner.labels import LabelScheme

SHIPPED = ("default",)

# Model types whose position table reserves rows up to the padding id: the first position is pad_token_id + 1.
_OFFSET_POSITIONS = frozenset(
    [
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
        "roberta-prelayernorm",
        "camembert",
        "longformer",
        "mpnet",
        "xmod",
        "ibert",
        "lilt",
        "luke",
        "data2vec-text",
        "markuplm",
        "layoutlmv3",
    ]
)


@dataclass(frozen=True)
class Bundle:
    """An opened model directory; opening verified the digest of every file that will be read."""

    path: Path
    manifest: Manifest
    scheme: LabelScheme

    @property
    def digest(self) -> str:
        """Identity of the bundle, all variants together."""
        return self.manifest.digest

    def choose(self, *, runtime: str = "auto", variant: str = "auto") -> tuple[str, Variant]:
        """The variant to run: the one named, or the first that the runtime can compute, smallest first."""
        variants = self.manifest.variants
        if variant != "auto":
            if variant not in variants:
                raise BundleError(
                    f"bundle {self.manifest.name} has no variant {variant!r}{nearest(variant, variants)}"
                )
            chosen = variants[variant]
            if runtime not in ("auto", chosen.runtime):
                raise BundleError(f"variant {variant!r} is computed by {chosen.runtime}, not {runtime}")
            return variant, chosen
        fitting = {k: v for k, v in variants.items() if runtime in ("auto", v.runtime)}
        if not fitting:
            have = ", ".join(f"{k} ({v.runtime})" for k, v in variants.items())
            raise BundleError(
                f"bundle {self.manifest.name} has no variant for runtime {runtime!r}; it has: {have}"
            )
        size = {k: sum(self.manifest.files[f].bytes for f in v.files) for k, v in fitting.items()}
        best = min(fitting, key=lambda k: (fitting[k].runtime != "onnx", size[k]))
        return best, fitting[best]

    def file(self, name: str) -> Path:
        """Path of one of the bundle's files."""
        return self.path / name


def locate(model: str | Path) -> Path:
    """The directory behind a model name or path; PathError names the shipped models."""
    if str(model) in SHIPPED:
        return Path(str(package_files("spark_ner.bundle") / "models" / str(model)))
    path = Path(model)
    if path.is_dir():
        return path
    raise PathError(
        f"model {str(model)!r} is neither a shipped model ({', '.join(SHIPPED)}, fake) "
        "nor a directory on this machine"
    )


def open_bundle(model: str | Path, *, variants: Iterable[str] | None = None) -> Bundle:
    """Open and verify a bundle or a Hugging Face directory.

    Args:
        model: a shipped model's name, or a directory.
        variants: check only these variants' files (and the tokenizer); None checks all.

    Raises:
        PathError: nothing is there.
        BundleError: a file is missing, its digest differs, weights are pickles, labels are not labels.
    """
    path = locate(model)
    if (path / MANIFEST_NAME).is_file():
        manifest = read_manifest(path)
        wanted = set(manifest.variants if variants is None else variants)
        names = [
            manifest.tokenizer,
            *(f for k, v in manifest.variants.items() if k in wanted for f in v.files),
        ]
        for name in dict.fromkeys(names):
            _verify(path / name, manifest.files[name])
    else:
        manifest = _manifest_of_hugging_face(path)
    return Bundle(path, manifest, LabelScheme.from_tags(manifest.labels))


def _verify(file: Path, entry: FileEntry) -> None:
    if not file.is_file():
        raise BundleError(f"the bundle is incomplete: {file} is missing")
    if file.stat().st_size != entry.bytes:
        raise BundleError(f"{file} has {file.stat().st_size} bytes, the manifest says {entry.bytes}")
    found = sha256_of(file)
    if found != entry.sha256:
        raise BundleError(f"{file} was changed: sha256 {found[:16]}…, the manifest says {entry.sha256[:16]}…")


def _manifest_of_hugging_face(path: Path) -> Manifest:
    config_file = path / "config.json"
    if not config_file.is_file():
        raise BundleError(f"{path} is no model: it has neither {MANIFEST_NAME} nor config.json")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{config_file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise BundleError(f"{config_file} is no model's config: an object was wanted")
    if "auto_map" in config:
        raise BundleError(f"{config_file} names code of its own (auto_map); remote code is never run")
    weights = sorted(p.name for p in path.glob("*.safetensors"))
    if not weights:
        pickles = sorted(p.name for p in [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pkl")])
        what = f"only {', '.join(pickles)}, which can run code when loaded" if pickles else "no weights"
        raise BundleError(
            f"{path} has {what}; safetensors are wanted (model.save_pretrained(DIR) writes them)"
        )
    names = ["config.json", *weights, *(p.name for p in path.glob("*.safetensors.index.json"))]
    if not (path / "tokenizer.json").is_file():
        raise BundleError(
            f"{path} has no tokenizer.json: a fast tokenizer is needed; "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes one"
        )
    entries = {
        n: FileEntry(sha256=sha256_of(path / n), bytes=(path / n).stat().st_size)
        for n in [*names, "tokenizer.json"]
    }
    max_tokens = _max_tokens(config)
    return Manifest(
        format=FORMAT,
        name=path.name,
        version="0",
        labels=_labels(config, config_file),
        max_tokens=max_tokens,
        variants={"original": Variant(runtime="torch", precision=_precision(config), files=tuple(names))},
        files=entries,
        token_feature=config.get("spark_ner_token_feature", "none"),
        window_tokens=min(WINDOW_TOKENS, max_tokens),
        overlap_tokens=OVERLAP_TOKENS,
    )


def _labels(config: dict[str, object], config_file: Path) -> tuple[str, ...]:
    mapping = config.get("id2label")
    if not isinstance(mapping, dict) or not mapping:
        raise BundleError(f"{config_file} has no id2label: the model names no labels")
    try:
        by_id = {int(k): str(v) for k, v in mapping.items()}
    except ValueError:
        raise BundleError(
            f"{config_file}: the ids of id2label are no numbers: {', '.join(mapping)}"
        ) from None
    if sorted(by_id) != list(range(len(by_id))):
        raise BundleError(f"{config_file}: id2label skips ids; got {sorted(by_id)}")
    return tuple(by_id[i] for i in range(len(by_id)))


def _max_tokens(config: dict[str, object]) -> int:
    """The limit of the position table, not of the tokenizer's settings, which often name none."""
    limit = int(str(config.get("max_position_embeddings") or config.get("n_positions") or 512))
    if config.get("model_type") in _OFFSET_POSITIONS:
        pad = config.get("pad_token_id")
        limit -= int(str(1 if pad is None else pad)) + 1  # 1 is transformers' default for all of them
    return limit


def _precision(config: dict[str, object]) -> str:
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")
