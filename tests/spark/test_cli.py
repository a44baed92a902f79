"""The command and the spark-submit job as processes: exit codes, one sentence, a kill between two commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.jobs import documents, ids_of, rows_of, write_lines

KILLED = """
import os, sys
from spark_ner.spark.arguments import annotate_parser, config_from
from spark_ner.spark.job import run
from spark_ner.spark.microbatch import Hooks
from spark_ner.spark.session import build_session
config = config_from(annotate_parser("t").parse_args(sys.argv[1:]))
spark = build_session("killed")
def on_step(step):
    if step == "entities committed":
        os.kill(spark.sparkContext._gateway.proc.pid, 9)
        os._exit(9)
run(spark, config, hooks=Hooks(on_step=on_step))
"""


def _process(arguments: list[str], folder: Path, root: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    env |= {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(root),
        "MASTER": "local[2]",
    }
    return subprocess.run(
        arguments, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=900
    )


def _flags(folder: Path) -> list[str]:
    flags = ["--input", str(folder / "in"), "--output", str(folder / "out/entities"), "--id-col", "id"]
    return [*flags, "--model", "fake"]


@pytest.mark.slow
def test_killed_between_the_two_commits_then_run_again(tmp_path: Path, root: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(4))
    killed = _process([sys.executable, "-c", KILLED, *_flags(tmp_path)], tmp_path, root)
    assert killed.returncode == 9, killed.stderr[-2_000:]
    output = tmp_path / "out/entities"
    assert len(ids_of(output)) == 4
    assert rows_of(f"{output}_runs") == []

    command = [sys.executable, "-m", "spark_ner.cli", "annotate", *_flags(tmp_path), "--show", "1"]
    done = _process(command, tmp_path, root)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "replayed   1 micro-batch(es)" in done.stdout
    assert "Oslo" in done.stdout
    assert ids_of(output) == [0, 1, 2, 3]
    (row,) = rows_of(f"{output}_runs")
    assert (row["replayed"], row["documents"], row["entities"]) == (True, 4, 6)
    (line,) = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"batch_id"')]
    assert (line["batch_id"], line["documents"], line["replayed"]) == (0, 4, True)


@pytest.mark.slow
def test_spark_submit_and_its_exit_codes(tmp_path: Path, root: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", documents(3))
    submit = str(Path(sys.executable).parent / "spark-submit")
    jars = ",".join(sorted(map(str, (root / ".jars").glob("*.jar"))))
    spark = [submit, "--master", "local[2]", "--jars", jars, "--conf", "spark.ui.enabled=false"]
    job = [*spark, str(root / "jobs/ner_batch.py"), *_flags(tmp_path)]
    fault = _process([*job, "--text-col", "txt", "--set", "read_options.apiToken=zz9"], tmp_path, root)
    told = fault.stdout + fault.stderr  # spark-submit prints Python's stderr to its stdout
    assert fault.returncode == 2, fault.stderr[-2_000:]
    assert 'column "txt" not found; the input has: id, lang, text' in told
    assert "Traceback" not in told
    assert "zz9" not in told
    done = _process(job, tmp_path, root)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "documents  3" in done.stdout
    assert ids_of(tmp_path / "out/entities") == [0, 1, 2]
