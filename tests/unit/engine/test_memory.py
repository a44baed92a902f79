"""Memory depends on the slab, the look-ahead and the batch, not on a document's length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import resource, sys, tempfile
from spark_ner.engine import load_engine
engine = load_engine("fake")
engine.annotate(["Oslo " * 2_000, "warm up"])
text = eval(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(found,) = engine.annotate([text])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
last = found[-1] if found else None
print(len(text), len(found), last.start, last.end, last.label, (after - before) // 1024)
"""


def annotate_apart(expression: str) -> list[str]:
    """Annotate one text in a process of its own: length, entities, the last one, MiB added to the peak."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, expression],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.split()


@pytest.mark.slow
def test_c28_five_million_characters() -> None:
    length, n, start, end, label, mib = annotate_apart("'ab ' * 1666667 + 'Lima'")
    assert (length, n, start, end, label) == ("5000005", "1", "5000001", "5000005", "LOC")
    assert int(mib) < 300


@pytest.mark.slow
def test_ten_megabytes_add_at_most_300_mib() -> None:
    # To the fake a word that is not ASCII is one token; of an ASCII word each character is one.
    sentence = (
        "Ada в компании переговоры сообщил журналистам Oslo представитель правительства вчера вечером, "
    )
    length, n, start, end, label, mib = annotate_apart(f"{sentence!r} * (10_000_000 // {len(sentence)} + 1)")
    repeats = 10_000_000 // len(sentence) + 1
    assert (int(length), int(n)) == (repeats * len(sentence), 2 * repeats)
    assert label == "LOC"
    assert int(end) - int(start) == 4
    assert int(mib) < 300


@pytest.mark.slow
def test_a_million_characters_without_a_blank() -> None:
    length, n, start, end, _, mib = annotate_apart("'Oslo,Rome;' * 100_000 + 'Lima'")
    assert (length, n, start, end) == ("1000004", "200001", "1000000", "1000004")
    assert int(mib) < 300
