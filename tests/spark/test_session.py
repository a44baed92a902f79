"""What is wrong with an environment, in one sentence, by environments that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from pyspark.sql import SparkSession

from spark_ner.spark.session import build_session, check_environment

ROOT = Path(__file__).resolve().parents[2]

BROKEN = """
import sys
from spark_ner.errors import SetupError
from spark_ner.spark.session import build_session, check_delta, check_workers

spark = build_session("broken", delta=False, conf={"spark.master": "local[1]", "spark.log.level": "OFF"})
for check in (check_delta, check_workers):
    try:
        check(spark)
    except SetupError as error:
        print("SETUP", error)
"""


def test_a_working_session_passes_and_is_reused(spark: SparkSession) -> None:
    check_environment(spark)
    assert build_session("another name", conf={"spark.sql.ansi.enabled": "true"}) is spark
    assert spark.conf.get("spark.app.name") == "spark-ner-tests"


def test_no_delta_and_workers_without_the_package(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    ran = subprocess.run(
        [sys.executable, "-c", BROKEN],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = [line for line in ran.stdout.splitlines() if line.startswith("SETUP")]
    assert len(said) == 2, ran.stderr[-2000:]
    assert "the session has no Delta Lake: give spark-submit `--jars`" in said[0]
    assert f"the workers' Python ({python}) has no module" in said[1]
    assert "set PYSPARK_PYTHON to a Python that has it" in said[1]
