"""The job's settings: one frozen value out of a TOML file, `--set key=value` and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from spark_ner.engine.spec import EngineSpec
from spark_ner.errors import ConfigError

Format = Literal["auto", "parquet", "json", "csv", "text", "delta"]
Shape = Literal["nested", "exploded"]
Mode = Literal["incremental", "once"]


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One job: which documents, which model, which table. Impossible values are refused here.

    `read_options` go to Spark's reader as they are; `schema` (DDL) spares the pass that infers JSON's types.
    """

    input: str
    output: str
    format: Format = "auto"
    text_unit: Literal["file", "line"] = "file"  # of text files: what one document is
    text_col: str = "text"
    id_col: str | None = None  # None: the document's file and position
    keep: tuple[str, ...] = ()
    schema: str | None = None
    read_options: Mapping[str, str] = field(default_factory=dict)
    model: str = "default"
    engine: EngineSpec = field(default_factory=EngineSpec)
    shape: Shape = "nested"
    mode: Mode = "incremental"
    runs_table: str | None = None  # None: beside the output
    checkpoint: str | None = None  # None: beside the output, where that is a path
    run_id: str | None = None
    task_seconds: float = 120.0  # what one task should take
    batch_minutes: float = 10.0  # what one micro-batch should take, all slots busy
    recover: bool = False
    single_writer: bool = False  # vouches for an S3 store without a lock: no other cluster writes this table

    def __post_init__(self) -> None:
        for name in ("input", "output", "text_col"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must not be empty")
        for name in ("task_seconds", "batch_minutes"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0, got {getattr(self, name)}")
        if self.mode == "once" and self.checkpoint is not None:
            raise ConfigError("checkpoint goes with mode incremental; mode once is keyed by run_id")
        if self.mode == "once" and self.recover:
            raise ConfigError("recover goes with mode incremental; mode once is keyed by run_id")
        if len(set(self.keep)) < len(self.keep):
            raise ConfigError(f"keep names a column twice: {', '.join(self.keep)}")
