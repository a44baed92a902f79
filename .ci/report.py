"""Adds up pytest's JUnit reports; fails when one is absent, ran nothing, or skipped what it could have run.

Run as `python3 .ci/report.py FOLDER NAME...`; each FOLDER/NAME.xml must exist. A test that skipped for want
of `../shared` although that folder is there is a failure: a green run must mean that those tests ran.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path


def read(path: Path) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Returns the outcomes (passed, failed, skipped) counted, and (test, reason) for each skipped test."""
    counts: Counter[str] = Counter()
    skipped = []
    for case in ET.parse(path).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        elif skip is not None and skip.get("type") != "pytest.xfail":
            counts["skipped"] += 1
            reason = f"{skip.get('message', '')} {skip.text or ''}"
            skipped.append((f"{case.get('classname')}::{case.get('name')}", reason))
        else:
            counts["passed"] += 1
    return counts, skipped


def complaints(folder: Path, names: list[str], *, shared_there: bool) -> tuple[Counter[str], list[str]]:
    """Returns the outcomes of all reports together, and a sentence for each thing that is wrong."""
    total: Counter[str] = Counter()
    wrong = []
    for name in names:
        path = folder / f"{name}.xml"
        if not path.exists():
            wrong.append(f"{path} is absent: its tests did not run")
            continue
        counts, skipped = read(path)
        total += counts
        if counts["passed"] == 0:
            wrong.append(f"{path} has no test that passed")
        if shared_there:
            lacking = [(test, why.strip()) for test, why in skipped if "shared" in why]
            wrong += [f"{test} skipped ({why}), and ../shared is there" for test, why in lacking]
    return total, wrong


def main(arguments: list[str]) -> int:
    """Prints the sum in one plain line; returns the exit code."""
    folder, names = Path(arguments[0]), arguments[1:]
    shared = Path(__file__).resolve().parents[2] / "shared"
    total, wrong = complaints(folder, names, shared_there=shared.is_dir())
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if wrong or total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
