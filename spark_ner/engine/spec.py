"""What an engine is told to do: one small frozen, picklable value that crosses from driver to workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from spark_ner.errors import ConfigError

RuntimeName = Literal["auto", "onnx", "torch", "fake"]
WordStrategy = Literal["first", "average", "max"]
OnError = Literal["record", "fail"]


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """Settings of one engine; impossible values are refused here, before any job starts.

    `window_tokens` and `overlap_tokens` count tokens without the special ones; None takes the bundle's.
    """

    runtime: RuntimeName = "auto"
    variant: str = "auto"
    window_tokens: int | None = None
    overlap_tokens: int | None = None
    batch_tokens: int = 512  # what stays in a core's cache; more is slower on CPUs
    lookahead_tokens: int = 65_536
    word_strategy: WordStrategy = "first"
    thresholds: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None  # of the runtime; None: as many as the process may use
    device: str = "cpu"
    max_document_chars: int | None = None  # a longer document is an error of its row, never cut
    on_error: OnError = "record"

    def __post_init__(self) -> None:
        choices = {"runtime": RuntimeName, "word_strategy": WordStrategy, "on_error": OnError}
        for name, literal in choices.items():
            if getattr(self, name) not in get_args(literal):
                wanted = ", ".join(get_args(literal))
                raise ConfigError(f"{name} must be one of {wanted}; got {getattr(self, name)!r}")
        for name in ("window_tokens", "batch_tokens", "lookahead_tokens", "threads", "max_document_chars"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if self.overlap_tokens is not None and self.overlap_tokens < 0:
            raise ConfigError(f"overlap_tokens must be at least 0, got {self.overlap_tokens}")
        for label, threshold in self.thresholds.items():
            if not 0 <= threshold <= 1:
                raise ConfigError(f"threshold of {label} must lie between 0 and 1, got {threshold}")

    def window(self, *, limit: int, default: int, overlap: int) -> tuple[int, int]:
        """Window and overlap for a model that takes `limit` tokens; ConfigError where they clash."""
        window = min(default, limit) if self.window_tokens is None else self.window_tokens
        if window > limit:
            raise ConfigError(
                f"window_tokens is {window}, but the model takes at most {limit} besides its special tokens, "
                f"with an overlap of at most {limit - 1}"
            )
        chosen = min(overlap, window // 4) if self.overlap_tokens is None else self.overlap_tokens
        if chosen >= window:
            raise ConfigError(
                f"overlap_tokens is {chosen}; with a window of {window} it can be at most {window - 1}"
            )
        return window, chosen

    def fingerprint(self) -> str:
        """A digest of every setting: engines of equal fingerprint and bundle are interchangeable."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=dict).encode()).hexdigest()[
            :16
        ]
