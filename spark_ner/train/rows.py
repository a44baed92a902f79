"""Labeled rows of a JSON file or a table: text with character spans, or tokens with tags.

A row's fault is a TrainingDataError that names the field and what was wanted; who reads the rows adds the
place. No message holds a document's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np

from spark_ner.config import did_you_mean
from spark_ner.errors import ConfigError, TrainingDataError
from spark_ner.labels import LabelScheme
from spark_ner.train.bad_rows import BadRows, reject
from spark_ner.train.data import Labeled, Span, has_prefix, labeled, numbered_lines

_MOST_NAMES = 12  # field names shown in an error
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "a boolean"),
    ((int, np.integer), "a whole number"),
    ((float, np.floating), "a fraction"),
    (str, "a string"),
    ((list, tuple, np.ndarray), "a list"),
    (Mapping, "an object"),
)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Names of the fields, or columns, of a labeled row.

    Spans are objects with `start`, `end` and `label`, or lists of these three; offsets count code points, the
    end is exclusive. Where `tokens` and `tags` are named, those are read in place of text and spans.
    """

    text: str = "text"
    spans: str = "spans"
    start: str = "start"
    end: str = "end"
    label: str = "label"
    tokens: str = ""
    tags: str = ""
    prefixed: bool = True  # tags are O, or a prefix (B, I, E, L, S, U), a hyphen and a type; else O or a type
    id: str = ""  # names a row in errors

    def __post_init__(self) -> None:
        if bool(self.tokens) != bool(self.tags):
            raise ConfigError(
                f"fields: tokens and tags are wanted together, got {self.tokens!r} and {self.tags!r}"
            )
        for name in ("text", "spans", "start", "end", "label"):
            if not getattr(self, name):
                raise ConfigError(f"fields.{name} must not be empty")
        if len(set(self.names)) < len(self.names):
            raise ConfigError(f"fields: two different names are wanted, got {self.names[0]!r} twice")

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that a row must have."""
        return (self.tokens, self.tags) if self.tokens else (self.text, self.spans)


def row_to_labeled(row: object, fields: Fields) -> Labeled:
    """One row, a mapping by field name, as a text with its spans in order; labels are the row's own.

    Overlaps are not looked at: a label map may take one of two spans away.

    Raises:
        TrainingDataError: says what of the row is missing or wrong; the message names no place.
    """
    if not isinstance(row, Mapping):
        raise TrainingDataError(f"an object with fields was wanted, got {kind_of(row)}")
    if fields.tokens:
        return _of_tags(row, fields)
    text = _string(_value(row, fields.text), fields.text)
    items = _list(_value(row, fields.spans), fields.spans)
    spans = [_span(item, f"{fields.spans}[{i}]", fields, text) for i, item in enumerate(items)]
    return Labeled(text, tuple(sorted(spans, key=lambda s: (s.start, s.end, s.label))))


def kind_of(value: object) -> str:
    """The kind of a JSON or Arrow value, for an error."""
    if value is None:
        return "null"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)


def json_rows(file: str | Path, *, bad: BadRows | None = None) -> Iterator[tuple[str, object]]:
    """Place and value of each row of a JSON Lines file, or of one JSON array in a file (`.gz` too).

    Blank lines are passed over.

    Raises:
        TrainingDataError: names the line that is no JSON, or says that the file holds no row.
    """
    path = Path(file)
    lines = ((number, line) for number, line in numbered_lines(path) if line.strip())
    first = next(lines, None)
    if first is None:
        reject(bad, str(path), "the file holds no row")
    elif first[1].lstrip().startswith(b"["):
        yield from _items_of(path, bad)
    else:
        for number, line in chain([first], lines):
            try:
                row = _parse(line)
            except TrainingDataError as error:
                reject(bad, f"{path}, line {number}", str(error))
            else:
                yield f"{path}, line {number}", row


def _items_of(path: Path, bad: BadRows | None) -> Iterator[tuple[str, object]]:
    try:
        items = _parse(b"\n".join(line for _, line in numbered_lines(path)))
    except TrainingDataError as error:
        raise TrainingDataError(
            f"{path}: {error}; a file that begins with [ is read as one array of rows"
        ) from None
    if not isinstance(items, list) or not items:
        reject(bad, str(path), "the file holds no row")
        return
    for index, item in enumerate(items, 1):
        yield f"{path}, row {index}", item


def _parse(raw: bytes) -> object:
    try:
        parsed: object = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TrainingDataError(f"not UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise TrainingDataError(f"not JSON ({error.msg} at {where}column {error.colno})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number of too many digits
        raise TrainingDataError(f"not JSON that can be read ({error})") from None
    return parsed


def _value(row: Mapping[object, object], name: str, where: str = "") -> object:
    if name not in row:
        names = [str(key) for key in row]
        shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        raise TrainingDataError(
            f'field "{where}{name}" missing; there are: {shown or "none"}{did_you_mean(name, names)}'
        )
    return row[name]


def _list(value: object, where: str) -> Sequence[object]:
    if isinstance(value, np.ndarray):  # pandas hands out lists so
        return list(value)
    if not isinstance(value, (list, tuple)):
        raise TrainingDataError(f"{where}: a list was wanted, got {kind_of(value)}")
    return value


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise TrainingDataError(f"{where}: a string was wanted, got {kind_of(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TrainingDataError(f"{where}: half of a surrogate pair at offset {error.start}") from None
    return value


def _offset(value: object, where: str) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TrainingDataError(f"{where}: a whole number was wanted, got {kind_of(value)}")
    if not -(2**63) <= value < 2**63:
        raise TrainingDataError(f"{where}: an offset was wanted, got a number beyond 64 bits")
    return int(value)


def _span(item: object, where: str, fields: Fields, text: str) -> Span:
    if isinstance(item, Mapping):
        names = (fields.start, fields.end, fields.label)
        start, end, label = (_value(item, name, f"{where}.") for name in names)
        place = [f"{where}.{name}" for name in names]
    else:
        parts = _list(item, where)
        if len(parts) != 3:
            raise TrainingDataError(f"{where}: [start, end, label] was wanted, got {len(parts)} items")
        start, end, label = parts
        place = [f"{where}[{i}]" for i in range(3)]
    low, high = _offset(start, place[0]), _offset(end, place[1])
    if not 0 <= low < high <= len(text):
        raise TrainingDataError(
            f"{where}: 0 <= start < end <= {len(text)} (code points) was wanted, got {low} and {high}"
        )
    if text[low:high].isspace():
        raise TrainingDataError(f"{where}: [{low}, {high}) holds nothing but blanks")
    name = _string(label, place[2])
    if not name:
        raise TrainingDataError(f"{place[2]}: the label is empty")
    return Span(low, high, name)


def _of_tags(row: Mapping[object, object], fields: Fields) -> Labeled:
    tokens, tags = (
        [_string(v, f"{name}[{i}]") for i, v in enumerate(_list(_value(row, name), name))]
        for name in (fields.tokens, fields.tags)
    )
    if len(tokens) != len(tags):
        raise TrainingDataError(
            f"{fields.tags}: as many as {fields.tokens} were wanted, got {len(tags)} for {len(tokens)}"
        )
    for index, (token, tag) in enumerate(zip(tokens, tags, strict=True)):
        if not token.strip(" ") or not tag:
            name = fields.tags if token.strip(" ") else fields.tokens
            raise TrainingDataError(f"{name}[{index}]: empty")
        if fields.prefixed and not has_prefix(tag):
            raise TrainingDataError(
                f"{fields.tags}[{index}]: {tag[:40]!r} is not O and has no known prefix (B, I, E, L, S, U); "
                "say fields.prefixed = false where tags are types"
            )
    read = tags if fields.prefixed else [tag if tag == "O" else f"I-{tag}" for tag in tags]
    return labeled(tokens, read, _scheme(tuple(sorted(set(read) | {"I-type"}))))


@lru_cache(maxsize=4096)
def _scheme(tags: tuple[str, ...]) -> LabelScheme:
    return LabelScheme.from_tags(tags)
