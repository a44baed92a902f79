"""The one Spark session of the tests: two local cores, Delta, nothing listening but on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def delta_jars() -> str:
    """The Delta jars as `spark.jars` wants them; `make jars` puts them where this looks."""
    folder = Path(os.environ.get("SPARK_NER_TEST_JARS", ROOT / ".jars"))
    jars = sorted(str(jar) for jar in folder.glob("*.jar"))
    if not jars:
        pytest.exit(f"no Delta jars in {folder}: run `make jars`", returncode=2)
    return ",".join(jars)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with Delta, `local[2]`, small shuffles; its warehouse goes with the test run."""
    scratch = tmp_path_factory.mktemp("spark")
    # Python workers are this interpreter; set before the JVM starts, which hands them on.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-ner-tests")
        .config("spark.jars", delta_jars())
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={scratch}")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
