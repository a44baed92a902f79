"""Strict configuration: TOML files and `key=value` settings into frozen dataclasses.

An unknown key is an error that names the nearest valid one; a value of the wrong type is an error that says
what was wanted. Nothing is dropped silently.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from spark_ner.errors import ConfigError, PathError

T = TypeVar("T")
Tree = Mapping[str, object]


def load_toml(path: str | Path) -> dict[str, object]:
    """Read a TOML file; PathError where it is absent, ConfigError (with the line) where it is not TOML."""
    file = Path(path)
    if not file.is_file():
        raise PathError(f"config file not found: {file}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def apply_sets(tree: Tree, settings: Iterable[str]) -> dict[str, object]:
    """A copy of the tree with each `a.b=value` applied; values are TOML, or plain text where they are not."""
    changed: dict[str, Any] = copy.deepcopy(dict(tree))
    for setting in settings:
        path, equals, value = setting.partition("=")
        keys = [part.strip() for part in path.split(".")]
        if not equals or not all(keys):
            raise ConfigError(f"--set {setting!r} is not of the form key=value")
        node = changed
        for key in keys[:-1]:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--set {setting!r}: {key} is a value, not a section")
        node[keys[-1]] = _parse_value(value.strip())
    return changed


def from_dict(cls: type[T], tree: Tree, *, where: str = "config") -> T:
    """Build a frozen dataclass from a mapping; ConfigError names an unknown key and the nearest valid one."""
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, value in tree.items():
        if key not in names:
            raise ConfigError(f"{where}: unknown key {key!r}{nearest(key, names)}")
        values[key] = _convert(hints[key], value, f"{where}.{key}")
    try:
        return cls(**values)
    except TypeError as error:
        missing = [n for n in names if n not in values and n in str(error)]
        if missing:
            raise ConfigError(f"{where}: missing key {', '.join(missing)}") from None
        raise


def nearest(name: str, valid: Iterable[str]) -> str:
    """The tail of an error message: `; did you mean 'x'?`, or the list of valid names."""
    options = list(valid)
    return did_you_mean(name, options) or f"; valid: {', '.join(sorted(options))}"


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """The tail of an error message that lists the valid names already; empty where none is near."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parse_value(text: str) -> object:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(hint: object, value: object, where: str) -> object:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        (inner,) = [a for a in args if a is not type(None)]
        return _convert(inner, value, where)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where}: {value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: a section was wanted, got {value!r}")
        return from_dict(typing.cast(type, hint), value, where=where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where}: a list was wanted, got {value!r}")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: a section was wanted, got {value!r}")
        return {str(k): _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    return _convert_scalar(typing.cast(type, hint), value, where)


def _convert_scalar(kind: type, value: object, where: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, float, str, bool) and (type(value) is not kind):
        raise ConfigError(f"{where}: {kind.__name__} wanted, got {value!r}")
    return value
