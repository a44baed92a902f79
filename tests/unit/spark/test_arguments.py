"""Flags, files and --set make one JobConfig (cases C65 and C67)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ner.config import load_toml
from spark_ner.errors import ConfigError, PathError
from spark_ner.spark.arguments import annotate_parser, config_from
from spark_ner.spark.settings import JobConfig


def _config(*flags: str) -> JobConfig:
    return config_from(
        annotate_parser("spark-ner annotate").parse_args(["--input", "i", "--output", "o", *flags])
    )


def test_flags_become_settings() -> None:
    config = _config(
        "--keep", "a, b", "--id-col", "id", "--shape", "exploded", "--task-seconds", "30", "--recover"
    )
    assert (config.keep, config.id_col, config.shape) == (("a", "b"), "id", "exploded")
    assert (config.task_seconds, config.recover) == (30.0, True)


def test_set_goes_before_flag_and_flag_before_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('text_col = "a"\nid_col = "b"\ntask_seconds = 5\n[engine]\nbatch_tokens = 64\n')
    config = _config("--config", str(file), "--id-col", "c", "--task-seconds", "6", "--set", "task_seconds=7")
    assert (config.text_col, config.id_col, config.task_seconds) == ("a", "c", 7.0)
    assert config.engine.batch_tokens == 64


def test_engine_settings_by_set() -> None:
    config = _config("--set", "engine.batch_tokens=2048", "--set", "engine.thresholds.PER=0.5")
    assert (config.engine.batch_tokens, dict(config.engine.thresholds)) == (2_048, {"PER": 0.5})


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("engine.windw_tokens=256", "'window_tokens'"),
        ("ouput='x'", "'output'"),
        ("engine.batch_token=1", "'batch_tokens'"),
    ],
)
def test_an_unknown_key_names_the_nearest(setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {named}"):
        _config("--set", setting)


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("task_seconds=0", "more than 0"),
        ("shape='tall'", "'nested', 'exploded'"),
        ("engine.batch_tokens='x'", "int wanted"),
        ("keep=['a', 'a']", "twice"),
        ("engine.overlap_tokens=-1", "at least 0"),
    ],
)
def test_impossible_values_are_refused(setting: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        _config("--set", setting)


def test_once_has_no_checkpoint() -> None:
    with pytest.raises(ConfigError, match="run_id"):
        _config("--mode", "once", "--checkpoint", "c")


def test_absent_config_file() -> None:
    with pytest.raises(PathError, match="nowhere"):
        _config("--config", "nowhere.toml")


def test_the_shipped_file_states_the_defaults(root: Path) -> None:
    tree = load_toml(root / "conf/job/ner_batch.toml")
    from_file = _config("--config", str(root / "conf/job/ner_batch.toml"))
    assert from_file == _config()
    assert {"task_seconds", "engine", "shape"} <= set(tree)
