"""The README's commands and code do what it says: each fenced block runs here, in the order of the page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_ner.cli import main
from tests.fixtures.jobs import rows_of

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
COMMANDS = [line for kind, code in BLOCKS if kind == "bash" for line in code.splitlines() if line]
JOBS = [c for c in COMMANDS if c.split()[0] in ("spark-submit", "spark-ner")]
ADA = "Ada Lovelace met Charles Babbage in London."


def test_the_page_has_the_blocks_that_are_tested() -> None:
    assert len(JOBS) >= 3
    assert sum(kind == "python" for kind, _ in BLOCKS) >= 3
    assert [c for c in COMMANDS if c not in JOBS and not re.fullmatch(r"make [a-z-]+", c)] == []


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_are_there(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command.removeprefix('make ')}:.*##", makefile, re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands name: a small examples/documents.jsonl, and conf/."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").mkdir()
    rows = [{"id": i, "lang": "en", "text": text} for i, text in enumerate([ADA, None, "", "Nothing here."])]
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    (folder / "examples" / "documents.jsonl").write_text(lines, encoding="utf-8")
    shutil.copytree(ROOT / "conf", folder / "conf")
    return folder


@pytest.mark.parametrize("command", JOBS)
def test_job_commands_run(
    command: str,
    place: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One after the other in one folder, as a reader runs them."""
    monkeypatch.chdir(place)
    words = [re.sub(r"^lake\b", str(place / "lake"), w) for w in shlex.split(command)]
    # spark-submit's own flags end at the script, whose arguments are the command's.
    at = words.index("jobs/ner_batch.py") + 1 if words[0] == "spark-submit" else 2
    assert main(["annotate", *words[at:]]) == 0, capsys.readouterr().err
    output = Path(words[words.index("--output") + 1])
    if "--dry-run" in words:
        assert "entities" in capsys.readouterr().out
        assert not output.exists()
        return
    rows = rows_of(output)
    if "exploded" in words:
        assert [(r["text"], r["label"], r["lang"]) for r in sorted(rows, key=lambda r: str(r["start"]))] == [
            ("Ada Lovelace", "PER", "en"),
            ("Charles Babbage", "PER", "en"),
            ("London", "LOC", "en"),
        ]
    else:
        assert sorted(r["id"] for r in rows) == [0, 1, 2, 3]  # type: ignore[type-var]


def test_python_blocks_run_one_after_the_other(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, ADA), (2, None)], "id int, text string")
    df.createOrReplaceTempView("docs")
    names: dict[str, object] = {"spark": spark, "df": df}
    results = []
    for kind, code in BLOCKS:
        if kind == "python":
            *head, last = re.split(r"\n(?=\S)", code.strip())
            exec("\n".join(head), names)
            results.append(eval(last, names) if re.match(r"[\w.]+\(", last) else exec(last, names))
    annotated, (safe, nothing), alone = names["df"], results[1].orderBy("id").collect(), results[2]
    assert [e.text for e in annotated.where("id = 1").first().entities] == [
        "Ada Lovelace",
        "Charles Babbage",
        "London",
    ]  # type: ignore[attr-defined]
    assert safe.safe == "[PER] met [PER] in [LOC]."
    assert (nothing.entities, nothing.safe) == (None, None)
    assert [e.label for e in alone] == ["PER", "PER", "LOC"]
