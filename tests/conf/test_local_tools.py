"""The programs that run before anything is installed: check_java, resolve_jars, and CI's report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def check_java(root: Path) -> ModuleType:
    return load(root / "conf/local/check_java.py")


@pytest.fixture(scope="module")
def resolve_jars(root: Path) -> ModuleType:
    return load(root / "conf/local/resolve_jars.py")


@pytest.fixture(scope="module")
def report(root: Path) -> ModuleType:
    return load(root / ".ci/report.py")


def fake_java(home: Path, version: str) -> dict[str, str]:
    (home / "bin").mkdir(parents=True)
    java = home / "bin/java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": "/nowhere"}


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("Unrecognized option: -version", None),
    ],
)
def test_java_version_is_read(check_java: ModuleType, banner: str, major: int | None) -> None:
    assert check_java.major_version(banner) == major


def test_a_good_java_draws_no_complaint(check_java: ModuleType, tmp_path: Path) -> None:
    assert check_java.complaint(fake_java(tmp_path, "17.0.2")) is None
    assert check_java.complaint({"JAVA_HOME": str(tmp_path)}, at_most=21) is None


def test_an_old_java_is_named_with_what_is_wanted(check_java: ModuleType, tmp_path: Path) -> None:
    sentence = check_java.complaint(fake_java(tmp_path, "11.0.23"))
    assert sentence.startswith(f"Spark needs Java 17 or later, and {tmp_path}/bin/java is Java 11: install")
    assert "\n" not in sentence


def test_a_java_too_new_for_spark_35_is_refused(check_java: ModuleType, tmp_path: Path) -> None:
    sentence = check_java.complaint(fake_java(tmp_path, "25.0.1"), at_most=21)
    assert "Java 17 to 21" in sentence
    assert "is Java 25" in sentence


def test_no_java_at_all(check_java: ModuleType) -> None:
    assert "there is no java on PATH" in check_java.complaint({"PATH": "/nowhere"})
    environ = {"PATH": "/nowhere", "JAVA_HOME": "/none"}
    assert "there is no java in JAVA_HOME=/none" in check_java.complaint(environ)


@pytest.mark.parametrize(
    ("ivy", "spark", "name"),
    [
        ("io.delta_delta-spark_4.2_2.13-4.4.0", "delta-spark_4.2_2.13-4.4.0", "delta-spark_4.2_2.13"),
        ("com.fasterxml.jackson.core_jackson-databind-2.13.5", "jackson-databind-2.20.0", "jackson-databind"),
        ("commons-pool_commons-pool-1.6", "commons-pool-1.5.4", "commons-pool"),
        (
            "org.apache.logging.log4j_log4j-slf4j2-impl-2.25.3",
            "log4j-slf4j2-impl-2.24.0",
            "log4j-slf4j2-impl",
        ),
    ],
)
def test_ivys_and_sparks_jar_names_meet(resolve_jars: ModuleType, ivy: str, spark: str, name: str) -> None:
    assert resolve_jars.artifact(f"{ivy}.jar", group=True) == name
    assert resolve_jars.artifact(f"{spark}.jar") == name


def test_a_changed_jar_is_not_complete(resolve_jars: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"one")
    digests = {"a.jar": resolve_jars.sha256(tmp_path / "a.jar")}
    assert resolve_jars.complete(tmp_path, digests)
    assert not resolve_jars.complete(tmp_path, digests | {"b.jar": "0" * 64})
    (tmp_path / "a.jar").write_bytes(b"two")
    assert not resolve_jars.complete(tmp_path, digests)
    assert not resolve_jars.complete(tmp_path, {})


def junit(folder: Path, name: str, cases: str) -> None:
    (folder / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


PASSED = '<testcase classname="t" name="ok"/>'
SHARED = (
    '<testcase classname="t" name="cases"><skipped type="pytest.skip" message="needs ../shared"/></testcase>'
)
FAILED = '<testcase classname="t" name="bad"><failure message="no"/></testcase>'


def test_reports_are_added_up(report: ModuleType, tmp_path: Path) -> None:
    junit(tmp_path, "unit", PASSED + PASSED + SHARED)
    junit(tmp_path, "spark", PASSED + FAILED)
    total, wrong = report.complaints(tmp_path, ["unit", "spark"], shared_there=False)
    assert total == {"passed": 3, "failed": 1, "skipped": 1}
    assert wrong == []


def test_a_skip_for_shared_is_wrong_only_where_shared_is(report: ModuleType, tmp_path: Path) -> None:
    junit(tmp_path, "unit", PASSED + SHARED)
    _, wrong = report.complaints(tmp_path, ["unit"], shared_there=True)
    assert wrong == ["t::cases skipped (needs ../shared), and ../shared is there"]


def test_an_absent_or_empty_report_is_wrong(report: ModuleType, tmp_path: Path) -> None:
    junit(tmp_path, "unit", "")
    _, wrong = report.complaints(tmp_path, ["unit", "spark"], shared_there=False)
    assert [sentence.split(": ")[0] for sentence in wrong] == [
        f"{tmp_path}/unit.xml has no test that passed",
        f"{tmp_path}/spark.xml is absent",
    ]


def test_ci_fails_on_what_the_report_says(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit(tmp_path, "unit", PASSED)
    assert report.main([str(tmp_path), "unit"]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed, 0 skipped\n"
    junit(tmp_path, "unit", PASSED + FAILED)
    assert report.main([str(tmp_path), "unit"]) == 1
