"""Write a bundle: files first, digests over what is on disk, the manifest last and by rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from spark_ner.bundle.load import Bundle, open_bundle
from spark_ner.bundle.manifest import FORMAT, MANIFEST_NAME, FileEntry, Manifest, Variant, sha256_of
from spark_ner.errors import BundleError
from spark_ner.labels import LabelScheme


def publish(
    directory: str | Path,
    *,
    name: str,
    version: str,
    labels: tuple[str, ...],
    max_tokens: int,
    variants: Mapping[str, Variant],
    sources: Mapping[str, Path],
    tokenizer: str = "tokenizer.json",
    token_feature: Literal["none", "letter_case"] = "none",
    window_tokens: int = 254,
    overlap_tokens: int = 64,
) -> Bundle:
    """Copy the files into the directory and write the manifest; a reader sees the old bundle or the new one.

    Args:
        sources: file name in the bundle -> file to copy (may be the same file already in place).

    Raises:
        BundleError: a variant names a file that is not among the sources.
        LabelError: the tags follow no scheme.
    """
    LabelScheme.from_tags(labels)
    wanted = {tokenizer, *(f for v in variants.values() for f in v.files)}
    if missing := sorted(wanted - set(sources)):
        raise BundleError(f"no source for {', '.join(missing)}")
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    (target / MANIFEST_NAME).unlink(missing_ok=True)  # no manifest may describe half-copied files
    entries: dict[str, FileEntry] = {}
    for file_name, source in sources.items():
        place = target / file_name
        if source.resolve() != place.resolve():
            aside = place.with_name(place.name + ".part")
            shutil.copyfile(source, aside)
            os.replace(aside, place)
        entries[file_name] = FileEntry(sha256=sha256_of(place), bytes=place.stat().st_size)
    manifest = Manifest(
        format=FORMAT,
        name=name,
        version=version,
        labels=labels,
        max_tokens=max_tokens,
        variants=dict(variants),
        files=entries,
        tokenizer=tokenizer,
        token_feature=token_feature,
        window_tokens=window_tokens,
        overlap_tokens=overlap_tokens,
    )
    aside = target / (MANIFEST_NAME + ".part")
    aside.write_text(manifest.to_json(), encoding="utf-8")
    os.replace(aside, target / MANIFEST_NAME)
    return open_bundle(target)
