"""`spark-ner models`: the shipped models, or what a model directory holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spark_ner.bundle.load import SHIPPED, Bundle, open_bundle


def models(argv: Sequence[str]) -> int:
    """Print each model's labels, windows and variants, its digests verified; returns the exit code."""
    parser = argparse.ArgumentParser(prog="spark-ner models", description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="*", help="a name or a directory (default: the shipped models)")
    parser.add_argument("--debug", action="store_true", help="a stack trace where something fails")
    names = parser.parse_args(list(argv)).model or list(SHIPPED)
    print("\n\n".join("\n".join(model_lines(open_bundle(name))) for name in names))
    return 0


def model_lines(bundle: Bundle) -> list[str]:
    """What a bundle holds, a line each."""
    manifest = bundle.manifest
    lines = [
        f"{manifest.name} {manifest.version}  (digest {manifest.digest[:12]}, at {bundle.path})",
        f"  labels   {', '.join(bundle.scheme.types)}",
        f"  windows  {manifest.window_tokens} tokens, overlap {manifest.overlap_tokens}",
    ]
    for name, variant in manifest.variants.items():
        size = sum(manifest.files[file].bytes for file in variant.files) / 1e6
        scores = ", ".join(f"{test} {f1:.1f}" for test, f1 in variant.f1.items())
        measured = f"; F1: {scores}" if scores else ""
        lines.append(f"  variant  {name}: {variant.runtime}, {variant.precision}, {size:.1f} MB{measured}")
    return lines
