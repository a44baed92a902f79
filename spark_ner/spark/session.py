"""A session where there is none, and one clear sentence where the environment cannot work."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spark_ner
from spark_ner.errors import SetupError
from spark_ner.spark.ship import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
JARS_FOLDER = Path(spark_ner.__file__).resolve().parents[1] / ".jars"  # of a clone: `make jars` fills it

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Text is large and its processing slow: small Arrow batches keep memory flat and cost nothing here, since the
# engine reads ahead over them. Spark before 4.1 knows the row limit only.
ARROW_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
LOCAL_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.databricks.delta.snapshotPartitions": "2",
}

_DELTA_JAR = re.compile(r"delta-spark_(?:(\d+\.\d+)_)?(2\.\d+)-(\d+)\.(\d+)\.\d+[^/]*\.jar$")


def build_session(
    app_name: str,
    *,
    conf: Mapping[str, str] | None = None,
    delta: bool = True,
    jars: Path | None = None,
) -> SparkSession:
    """The running session, or a new one: what caller or spark-submit have set stays, defaults fill the rest.

    Args:
        app_name: of a new session.
        conf: settings that win over everything but a running session's static ones.
        delta: whether a new session must read and write Delta tables.
        jars: folder with the Delta jars for a session that no spark-submit starts; None: `.jars` of the
            clone, else what the `delta-spark` package names.

    Raises:
        SetupError: no Java 17 or later, or jars for another Spark.
    """
    from pyspark.sql import SparkSession

    wanted = dict(conf or {})
    builder = SparkSession.builder.appName(app_name)
    if "SPARK_REMOTE" in os.environ or "spark.remote" in wanted:
        return _built(builder, wanted)
    if SparkSession.getActiveSession() is not None:
        return _built(SparkSession.builder, wanted)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    defaults = dict(ARROW_CONF)
    if delta and "DATABRICKS_RUNTIME_VERSION" not in os.environ:  # Databricks has its own Delta built in
        defaults |= DELTA_CONF
    if not submitted:
        check_java(os.environ)
        defaults |= _local_defaults(wanted, jars=(jars or JARS_FOLDER) if delta else None)
        if delta and not {"spark.jars", "spark.jars.packages"} & {*defaults, *wanted}:
            builder = _with_delta_package(builder)
    for key in _already_set() if submitted else ():
        defaults.pop(key, None)
    return _built(builder, {**defaults, **wanted})


def check_environment(spark: SparkSession, *, delta: bool = True) -> None:
    """Find out in a second or two what would fail a job later; costs one task of one row.

    Raises:
        SetupError: no Delta or one for another Spark; workers without this package, or that cannot start.
    """
    if delta:
        check_delta(spark)
    check_workers(spark)


def check_classic(spark: SparkSession) -> None:
    """Refuse a Connect session where a job is to run: SetupError says what works there."""
    if is_connect(spark):
        raise SetupError(
            "the job needs a classic session (spark-submit), and this one is Spark Connect: "
            "use spark_ner.annotate(df) there and write its rows"
        )


def check_java(environ: Mapping[str, str]) -> None:
    """Refuse a machine on which Spark's JVM cannot start: SetupError says what to install."""
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else environ.get("PATH", ""))
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise SetupError(f"Spark needs Java {JAVA_AT_LEAST} or later, and there is no java {where}")
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if found is None:
        raise SetupError(f"Spark needs Java {JAVA_AT_LEAST} or later, and `{java} -version` names no version")
    if int(found[1]) < JAVA_AT_LEAST:
        raise SetupError(f"Spark needs Java {JAVA_AT_LEAST} or later, and {java} is Java {found[1]}")


def check_jars(jars: Iterable[str], spark_version: str) -> None:
    """Refuse Delta jars that were built for another Spark, by their names: SetupError shows both sides."""
    minor = ".".join(spark_version.split(".")[:2])
    for jar in jars:
        if (found := _DELTA_JAR.search(jar)) is None:
            continue
        named, _, major, part = found.groups()
        built_for = named or {"3": "3.5", "4": "4.0"}.get(major, minor)  # Delta before 4.1 names no Spark
        if built_for != minor:
            name = jar.rsplit("/", 1)[-1]
            raise SetupError(
                f"{name} (Delta {major}.{part}) is for Spark {built_for}, and this is Spark {spark_version}: "
                "take the Delta release of your Spark, https://docs.delta.io/latest/releases.html lists them"
            )


def check_delta(spark: SparkSession) -> None:
    """Refuse a session that cannot read Delta tables: SetupError tells an absent jar from a wrong one."""
    check_jars((spark.conf.get("spark.jars", "") or "").split(","), spark.version)
    try:
        spark.read.format("delta").load("/spark-ner-no-such-table")
    except _spark_errors() as error:  # that the path is not there is what a working Delta says
        message = str(error)
        if "DATA_SOURCE_NOT_FOUND" in message or "Failed to find data source: delta" in message:
            raise SetupError(
                "the session has no Delta Lake: give spark-submit `--jars` with what `make jars` resolves or "
                f"`--packages` with the io.delta:delta-spark of Spark {spark.version}"
            ) from None
        if re.search(r"NoClassDefFound|NoSuchMethod|ServiceConfigurationError|ClassNotFound", message):
            raise SetupError(
                f"the Delta jar does not fit Spark {spark.version}: use one made for it"
            ) from None


def check_workers(spark: SparkSession) -> None:
    """Refuse workers whose Python cannot run the engine: SetupError names the Python and what it lacks."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Travels by value and imports here, so that a worker without the package can say so.
        import sys

        import onnxruntime  # noqa: F401
        import pyarrow

        import spark_ner.spark.worker

        for batch in batches:
            row = pyarrow.array([f"{spark_ner.__version__} {sys.executable}"] * batch.num_rows)
            yield pyarrow.RecordBatch.from_arrays([row], names=["version"])

    try:
        (row,) = spark.range(1).mapInArrow(probe, "version string").collect()
    except _spark_errors() as error:
        raise _worker_error(spark, str(error)) or error from None
    version, python = row["version"].split(" ", 1)
    if version != spark_ner.__version__:
        raise SetupError(
            f"the workers' Python {python} has spark-ner {version}, the driver has {spark_ner.__version__}: "
            "install one version on both"
        )


def _worker_error(spark: SparkSession, message: str) -> SetupError | None:
    """What the failed probe says, in one sentence; None where it says nothing known."""
    python = os.environ.get("PYSPARK_PYTHON") or spark.conf.get("spark.pyspark.python", None) or "python3"
    if missing := re.search(r"No module named '([\w.]+)'", message):
        return SetupError(
            f"the workers' Python ({python}) has no module {missing[1]}: install spark-ner there, "
            "or set PYSPARK_PYTHON to a Python that has it"
        )
    if "Cannot run program" in message:
        return SetupError(f"the workers' Python ({python}) cannot be started: set PYSPARK_PYTHON to another")
    if "PYTHON_VERSION_MISMATCH" in message:
        ours = ".".join(map(str, sys.version_info[:2]))
        return SetupError(f"the workers' Python ({python}) is not {ours} as the driver's: set PYSPARK_PYTHON")
    return None


def _spark_errors() -> tuple[type[Exception], ...]:
    """What a session raises: Connect one tree, py4j (which a Connect client may lack) another."""
    from pyspark.errors import PySparkException

    if importlib.util.find_spec("py4j") is None:
        return (PySparkException,)
    from py4j.protocol import Py4JJavaError

    return (PySparkException, Py4JJavaError)


def _local_defaults(wanted: Mapping[str, str], *, jars: Path | None) -> dict[str, str]:
    """Settings of a session that this process starts, on one machine unless `wanted` names a master."""
    import pyspark

    defaults = {} if "spark.master" in wanted else {"spark.master": os.environ.get("MASTER", "local[*]")}
    if {**defaults, **wanted}["spark.master"].startswith("local"):
        defaults |= LOCAL_CONF
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take the system's python3
    found = sorted(str(jar) for jar in jars.glob("*.jar")) if jars else []
    if found and "spark.jars" not in wanted:
        check_jars(found, pyspark.__version__)
        defaults["spark.jars"] = ",".join(found)
    return defaults


def _with_delta_package(builder: SparkSession.Builder) -> SparkSession.Builder:
    if importlib.util.find_spec("delta") is None:
        return builder
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder)  # through Ivy: some seconds, and a network the first time


def _already_set() -> set[str]:
    """Keys that spark-submit, its properties file or the cluster has set; its JVM runs already."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return {key for key, _ in SparkConf().getAll()}


def _built(builder: Any, conf: Mapping[str, str]) -> SparkSession:
    for key, value in conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
