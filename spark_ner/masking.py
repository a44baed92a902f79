"""Secrets in arguments and messages: masked in every spelling, and before anything is cut.

A setting is secret when one part of its name says so: `sink.password`, `fs.s3a.secret.key`, `apiToken`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

MASK = "***"

_SECRET_PARTS = frozenset(
    {
        "password",
        "passwd",
        "pwd",
        "passphrase",
        "secret",
        "token",
        "key",
        "apikey",
        "credential",
        "credentials",
    }
)
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_NAME = r"(?P<name>[A-Za-z][\w.\-]*)"
_VALUE = r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;)}\]]+)"""
# `name=value`, `name: value`, `'name': 'value'`; and `--name value`: prose such as `the key is wrong` must
# stay.
_ASSIGNED = re.compile(rf"""{_NAME}(?P<between>["']?\s*[=:]\s*){_VALUE}""")
_OPTION = re.compile(rf"(?<=--){_NAME}(?P<between>\s+){_VALUE}")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret; `batch_tokens` does not, `api_token` does."""
    return any(part.lower() in _SECRET_PARTS for part in _PART.findall(name))


def mask_text(text: str, *, secrets: Iterable[str] = ()) -> str:
    """The text with the known secrets, and the value of each secret-looking `name=value`, replaced.

    Mask first and cut after: a cut may otherwise leave half a secret behind, unrecognized.
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    return _OPTION.sub(_mask_pair, _ASSIGNED.sub(_mask_pair, text))


def mask_tree(tree: Mapping[str, object]) -> dict[str, object]:
    """A copy of a settings tree with the values of secret-looking keys replaced, at any depth."""
    masked: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            masked[key] = mask_tree(value)
        else:
            masked[key] = MASK if is_secret(key) else value
    return masked


def secrets_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """The secret values among command-line arguments, with their quotes and without."""
    found: list[str] = []
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if equals and is_secret(name):
            found += [value, value.strip("\"' ")]
        elif not equals and name.startswith("-") and is_secret(name) and index + 1 < len(arguments):
            found += [arguments[index + 1], arguments[index + 1].strip("\"' ")]
    return tuple(dict.fromkeys(value for value in found if value))


class MaskingFilter(logging.Filter):
    """Masks the finished message of every record that passes a handler."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the record's message; always lets it pass."""
        record.msg, record.args = mask_text(record.getMessage(), secrets=self._secrets), None
        return True


def _mask_pair(match: re.Match[str]) -> str:
    return f"{match['name']}{match['between']}{MASK}" if is_secret(match["name"]) else match[0]
