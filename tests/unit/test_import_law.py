"""What may be imported where: held in fresh interpreters, for this one has seen everything."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "torch", "transformers", "onnxruntime", "pandas")


def loaded(statements: str, modules: tuple[str, ...]) -> list[str]:
    """Which of the modules are in `sys.modules` after the statements, in a new interpreter."""
    code = f"{statements}\nimport sys\nprint(*(m for m in {modules!r} if m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded("import spark_ner; spark_ner.__version__; dir(spark_ner)", HEAVY) == []


def test_the_engine_knows_no_spark_and_the_fake_no_model_library() -> None:
    assert loaded("import spark_ner; spark_ner.load_engine('fake').annotate(['Oslo'])", HEAVY) == []


def test_the_bundle_and_the_worker_modules_import_no_torch() -> None:
    law = "import spark_ner.bundle, spark_ner.spark.worker, spark_ner.spark.transform, spark_ner.spark.udf"
    assert loaded(law, ("torch", "transformers")) == []


def test_the_worker_reaches_an_engine_without_pyspark_sql() -> None:
    assert loaded("import spark_ner.spark.worker", ("pyspark.sql", "torch")) == []


@pytest.mark.parametrize("folder", ["engine", "bundle"])
def test_lower_layers_name_no_upper_layer(folder: str) -> None:
    banned = (
        "pyspark",
        "delta",
        "spark_ner.spark",
        "spark_ner.sinks",
        "spark_ner.train",
        "spark_ner.compress",
    )
    found = [
        (file.name, name)
        for file in sorted((ROOT / "spark_ner" / folder).rglob("*.py"))
        for name in imported_names(file)
        if name.split(".")[0] in banned or name.startswith(banned[2:])
    ]
    assert found == []


def test_there_is_something_to_check() -> None:
    assert "numpy" in imported_names(ROOT / "spark_ner" / "engine" / "engine.py")


def imported_names(file: Path) -> list[str]:
    """Every module a file imports, at its top or within its functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
