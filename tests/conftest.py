"""What every test may use. No Spark here: tests/spark/conftest.py has the one session."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDS_SHARED = "needs ../shared"
if importlib.util.find_spec("hypothesis"):  # absent in the Spark 3.5 environment
    from hypothesis import HealthCheck, settings

    # No deadline: on two cores beside Spark any example is slow once. CI draws the same examples each time.
    settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """../shared beside the clone, which holds cases and corpora; skips where that folder is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(NEEDS_SHARED)
    return folder


@pytest.fixture(scope="session")
def examples() -> Path:
    """The documents written for this repository, one JSON object a line."""
    return ROOT / "examples" / "documents.jsonl"
