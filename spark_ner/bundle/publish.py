"""Write a bundle: files first, digests over what is on disk, the manifest last and by rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NotRequired, TypedDict, Unpack

from spark_ner.bundle.load import Bundle, open_bundle
from spark_ner.bundle.manifest import FORMAT, MANIFEST_NAME, FileEntry, Manifest, Variant, sha256_of
from spark_ner.errors import BundleError
from spark_ner.labels import LabelScheme


class About(TypedDict):
    """What a bundle says of its model: the fields of `Manifest` that do not follow from its files."""

    name: str
    version: str
    labels: tuple[str, ...]
    max_tokens: int
    token_feature: NotRequired[Literal["none", "letter_case"]]
    window_tokens: NotRequired[int]
    overlap_tokens: NotRequired[int]


def publish(
    directory: str | Path,
    *,
    variants: Mapping[str, Variant],
    sources: Mapping[str, Path],
    tokenizer: str = "tokenizer.json",
    **about: Unpack[About],
) -> Bundle:
    """Copy the files into the directory and write the manifest; a reader sees the old bundle or the new one.

    Args:
        directory: where; made if need be.
        variants: what it holds.
        sources: file name in the bundle -> file to copy (may be the same file already in place).
        tokenizer: name of the tokenizer's file.
        **about: the manifest's other fields, see `Manifest`.

    Raises:
        BundleError: a variant names a file that is not among the sources.
        LabelError: the tags follow no scheme.
    """
    LabelScheme.from_tags(about["labels"])
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
    manifest = Manifest(format=FORMAT, variants=dict(variants), files=entries, tokenizer=tokenizer, **about)
    aside = target / (MANIFEST_NAME + ".part")
    aside.write_text(manifest.to_json(), encoding="utf-8")
    os.replace(aside, target / MANIFEST_NAME)
    return open_bundle(target)
