from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from spark_ner.errors import SetupError
from spark_ner.spark import session as session_module
from spark_ner.spark.session import check_delta, check_jars, check_java, check_workers


def java(folder: Path, banner: str) -> dict[str, str]:
    """An environment whose java says `banner`."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_java_17_and_later_will_do(tmp_path: Path) -> None:
    check_java(java(tmp_path / "a", 'openjdk version "17.0.15" 2025-04-15'))
    check_java({"PATH": java(tmp_path / "b", 'openjdk version "25" 2025-09-16')["JAVA_HOME"] + "/bin"})


def test_no_java_or_an_old_one_is_one_sentence(tmp_path: Path) -> None:
    for environ, message in [
        ({"PATH": str(tmp_path)}, "Spark needs Java 17 or later, and there is no java on PATH"),
        (
            {"JAVA_HOME": "/no/such"},
            "Spark needs Java 17 or later, and there is no java in JAVA_HOME=/no/such",
        ),
        (java(tmp_path / "8", 'openjdk version "1.8.0_412"'), "bin/java is Java 8"),
        (java(tmp_path / "11", 'openjdk version "11.0.2"'), "bin/java is Java 11"),
        (java(tmp_path / "x", "hello"), "names no version"),
    ]:
        with pytest.raises(SetupError) as raised:
            check_java(environ)
        assert message in str(raised.value)


@pytest.mark.parametrize(
    ("jar", "spark", "built_for"),
    [
        ("/j/io.delta_delta-spark_4.2_2.13-4.4.0.jar", "4.2.0", None),
        ("file:/j/delta-spark_2.12-3.3.2.jar", "3.5.9", None),
        ("delta-spark_2.13-4.0.0.jar", "4.0.1", None),
        ("delta-spark_2.12-3.3.2.jar", "4.2.0", "3.5"),
        ("delta-spark_4.2_2.13-4.4.0.jar", "3.5.9", "4.2"),
        ("delta-spark_2.13-4.0.0.jar", "4.2.0", "4.0"),
        ("delta-storage-3.3.2.jar", "4.2.0", None),
        ("", "4.2.0", None),
    ],
)
def test_jars_for_another_spark_are_refused_by_name(jar: str, spark: str, built_for: str | None) -> None:
    if built_for is None:
        check_jars([jar], spark)
    else:
        with pytest.raises(SetupError, match=f"is for Spark {built_for}, and this is Spark {spark}"):
            check_jars([jar], spark)


class Session:
    """A session whose Delta reader and whose tasks fail as they do in broken environments."""

    version = "4.2.0"

    def __init__(self, failure: str, *, jars: str = "") -> None:
        self.failure = failure
        self.conf = {"spark.jars": jars}
        self.read = self

    def format(self, name: str) -> Session:
        return self

    def range(self, n: int) -> Session:
        return self

    def mapInArrow(self, function: object, schema: str) -> Session:
        return self

    def load(self, path: str) -> None:
        raise PySparkException(self.failure)

    def collect(self) -> None:
        raise PySparkException(self.failure)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.", "the session has no Delta Lake"),
        (
            "java.util.ServiceConfigurationError: DeltaDataSource Unable to",
            "the Delta jar does not fit Spark 4.2",
        ),
        ("java.lang.NoClassDefFoundError: scala/collection/GenTraversableOnce", "does not fit Spark 4.2.0"),
        ("[DELTA_PATH_DOES_NOT_EXIST] /spark-ner-no-such-table", None),
    ],
)
def test_what_a_delta_reader_says_is_understood(failure: str, sentence: str | None) -> None:
    session: Any = Session(failure)
    if sentence is None:
        check_delta(session)
        return
    with pytest.raises(SetupError, match=sentence):
        check_delta(session)


def test_a_session_with_jars_for_another_spark() -> None:
    session: Any = Session("not reached", jars="/j/a.jar,/j/delta-spark_2.12-3.3.2.jar")
    with pytest.raises(SetupError, match=r"delta-spark_2.12-3.3.2.jar \(Delta 3.3\) is for Spark 3.5"):
        check_delta(session)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (
            "ModuleNotFoundError: No module named 'spark_ner'",
            "has no module spark_ner: install spark-ner there",
        ),
        ('java.io.IOException: Cannot run program "/no/python"', "cannot be started: set PYSPARK_PYTHON"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different", "as the driver's: set PYSPARK_PYTHON"),
    ],
)
def test_what_a_failed_worker_says_is_understood(failure: str, sentence: str) -> None:
    session: Any = Session(failure)
    with pytest.raises(SetupError, match=sentence):
        check_workers(session)


def test_an_unknown_failure_goes_on() -> None:
    session: Any = Session("the disk is full")
    with pytest.raises(PySparkException, match="the disk is full"):
        check_workers(session)


def test_defaults_fill_what_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    monkeypatch.delenv("MASTER", raising=False)
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    local = session_module._local_defaults({}, jars=tmp_path)
    assert local["spark.master"] == "local[*]"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    assert os.environ["PYSPARK_PYTHON"] == "mine"
    assert (
        session_module._local_defaults({"spark.master": "spark://h:7077", "spark.jars": "x"}, jars=tmp_path)
        == {}
    )
