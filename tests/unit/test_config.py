"""Strict configuration: unknown keys and wrong types are named, nothing is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from spark_ner.config import apply_sets, from_dict, load_toml, nearest
from spark_ner.errors import ConfigError, PathError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    count: int = 1
    flag: bool = False
    limit: int | None = None
    labels: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    inner: Inner = Inner()


def test_a_full_tree() -> None:
    built = from_dict(
        Outer,
        {
            "name": "x",
            "count": 3,
            "flag": True,
            "limit": None,
            "labels": ["O", "PER"],
            "weights": {"PER": 1},
            "inner": {"rate": 1, "mode": "b"},
        },
    )
    inner = Inner(rate=1.0, mode="b")
    assert built == Outer(
        name="x", count=3, flag=True, labels=("O", "PER"), weights={"PER": 1.0}, inner=inner
    )
    assert isinstance(built.inner.rate, float)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"nam": "x"}, "config: unknown key 'nam'; did you mean 'name'?"),
        (
            {"name": "x", "zzzz": 1},
            "unknown key 'zzzz'; valid: count, flag, inner, labels, limit, name, weights",
        ),
        ({"name": "x", "inner": {"rat": 1}}, "config.inner: unknown key 'rat'; did you mean 'rate'?"),
        ({"name": "x", "count": "3"}, "config.count: int wanted, got '3'"),
        ({"name": "x", "count": True}, "config.count: int wanted, got True"),
        ({"name": "x", "count": 1.0}, "config.count: int wanted, got 1.0"),
        ({"name": "x", "flag": 1}, "config.flag: bool wanted, got 1"),
        ({"name": 5}, "config.name: str wanted, got 5"),
        ({"name": "x", "limit": "no"}, "config.limit: int wanted, got 'no'"),
        ({"name": "x", "labels": "O"}, "config.labels: a list was wanted, got 'O'"),
        ({"name": "x", "labels": ["O", 1]}, "config.labels[1]: str wanted, got 1"),
        ({"name": "x", "weights": {"PER": "a"}}, "config.weights.PER: float wanted, got 'a'"),
        ({"name": "x", "weights": [1]}, "config.weights: a section was wanted, got [1]"),
        ({"name": "x", "inner": 3}, "config.inner: a section was wanted, got 3"),
        ({"name": "x", "inner": {"mode": "c"}}, "config.inner.mode: 'c' is not one of 'a', 'b'"),
        ({}, "config: missing key name"),
    ],
)
def test_what_is_wrong_is_named(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Outer, tree)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('name = "é"\n[inner]\nrate = 0.25\n', encoding="utf-8")
    assert load_toml(file) == {"name": "é", "inner": {"rate": 0.25}}
    with pytest.raises(PathError, match=r"config file not found: .*absent.toml"):
        load_toml(tmp_path / "absent.toml")
    file.write_text("name = \n")
    with pytest.raises(ConfigError, match=r"job.toml is not valid TOML: .*line 1"):
        load_toml(file)
    file.write_bytes(b"name = '\xff'\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_toml(file)


def test_settings_go_over_the_tree_and_leave_it_alone() -> None:
    tree = {"name": "x", "inner": {"rate": 0.5, "deep": {"k": 1}}}
    settings = ["inner.rate=0.75", "count = 3", "flag=true", "labels=['O']", "model=path/to dir", "a.b.c=d=e",
                "inner.deep.k=2"]  # fmt: skip
    assert apply_sets(tree, settings) == {
        "name": "x",
        "inner": {"rate": 0.75, "deep": {"k": 2}},
        "count": 3,
        "flag": True,
        "labels": ["O"],
        "model": "path/to dir",
        "a": {"b": {"c": "d=e"}},
    }
    assert tree == {"name": "x", "inner": {"rate": 0.5, "deep": {"k": 1}}}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("count", "--set 'count' is not of the form key=value"),
        ("=3", "is not of the form key=value"),
        ("a..b=3", "is not of the form key=value"),
        ("name.x=3", "--set 'name.x=3': name is a value, not a section"),
    ],
)
def test_a_setting_that_is_none_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_sets({"name": "x"}, [setting])
    assert message in str(caught.value)


def test_nearest() -> None:
    assert nearest("windw", ["window", "overlap"]) == "; did you mean 'window'?"
    assert nearest("q", ["b", "a"]) == "; valid: a, b"
