"""`spark-ner train` in one process: labelled files in, a bundle out; killed, resumed, refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_ner import load_engine
from spark_ner.cli import main
from tests.fixtures.marks import with_torch
from tests.fixtures.training import SENTENCES, write_base, write_config, write_conll

pytestmark = with_torch


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def config(base: Path, tmp_path: Path) -> Path:
    write_conll(tmp_path / "train.conll")
    return write_config(tmp_path / "train.toml", base=base, root=tmp_path)


def log_of(output: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


def test_labelled_files_become_a_bundle_that_tags(config, tmp_path, capsys):
    output = tmp_path / "run"
    assert main(["train", "--config", str(config), "--output", str(output)]) == 0
    assert f"model      {output / 'model'}" in capsys.readouterr().out
    engine = load_engine(output / "model")
    found = engine.annotate([s.text for s in SENTENCES])
    for entities, sentence in zip(found, SENTENCES, strict=True):
        assert [(e.start, e.end, e.label) for e in entities] == [
            (s.start, s.end, s.label) for s in sentence.spans
        ]
    lines = log_of(output)
    assert [line["dev_f1"] for line in lines if "dev_f1" in line][-1] == 100.0
    assert {"loss", "tokens_per_s", "wait_share", "memory_mb"} <= set(lines[0])
    # Once more: nothing is trained again, and the same is delivered.
    weights = (output / "model" / "model.safetensors").read_bytes()
    assert main(["train", "--config", str(config), "--output", str(output)]) == 0
    assert (output / "model" / "model.safetensors").read_bytes() == weights
    assert len(log_of(output)) == len(lines)


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(config, tmp_path):
    command = [
        sys.executable,
        "-m",
        "spark_ner.cli",
        "train",
        "--config",
        str(config),
        "--set",
        "checkpoint_steps=5",
    ]
    subprocess.run([*command, "--output", str(tmp_path / "whole")], check=True, capture_output=True)
    output = tmp_path / "killed"
    process = subprocess.Popen(
        [*command, "--output", str(output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while len(list(output.glob("checkpoints/step-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (output / "model").exists()
    subprocess.run([*command, "--output", str(output), "--resume"], check=True, capture_output=True)
    mine, whole = ((p / "model" / "model.safetensors").read_bytes() for p in (output, tmp_path / "whole"))
    assert mine == whole


def test_two_runs_on_one_folder(config, tmp_path, capsys):
    from spark_ner.train.run import locked

    with locked(tmp_path / "run"):
        assert main(["train", "--config", str(config), "--output", str(tmp_path / "run")]) == 2
    assert "another run is writing to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--resume"], "no checkpoint to go on from"),
        (["--set", "epoch=3"], "unknown key 'epoch'; did you mean 'epochs'?"),
        (["--set", "base=/gone"], "base encoder '/gone' is not a directory"),
        (["--set", "labels=['PER']"], "has the label 'LOC'; valid: PER; map it in"),
        (["--set", "processes=2"], 'processes need launcher = "horovod" or "torch"'),
        (["--set", "tensor_parallel=2"], 'need launcher = "torch"'),
        (["--root", "/gone"], "train*.conll"),
    ],
)
def test_faults_of_the_call_are_one_sentence(config, tmp_path, capsys, flags, message):
    assert main(["train", "--config", str(config), "--output", str(tmp_path / "run"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_no_output_and_no_data_are_told(config, tmp_path, capsys):
    assert main(["train", "--config", str(config)]) == 2
    assert "--output is missing" in capsys.readouterr().err
    (tmp_path / "empty.toml").write_text("")
    assert main(["train", "--config", str(tmp_path / "empty.toml"), "--output", str(tmp_path / "run")]) == 2
    assert "no set to train on" in capsys.readouterr().err


def test_other_settings_on_an_old_run_are_refused_and_fresh_starts_anew(config, tmp_path, capsys):
    call = ["train", "--config", str(config), "--output", str(tmp_path / "run"), "--set", "epochs=1"]
    assert main(call) == 0
    assert main([*call, "--set", "learning_rate=1e-3"]) == 2
    assert "of a training with other settings or data" in capsys.readouterr().err
    assert main([*call, "--set", "learning_rate=1e-3", "--fresh"]) == 0


def test_a_loss_that_is_no_number_names_the_texts(config, tmp_path, capsys):
    call = [
        "train",
        "--config",
        str(config),
        "--output",
        str(tmp_path / "run"),
        "--set",
        "learning_rate=1e30",
    ]
    assert main([*call, "--set", "head_learning_rate=1e30", "--set", "clip_norm=1e30"]) == 1
    assert "NonFiniteLossError: the loss is nan" in (error := capsys.readouterr().err)
    assert "texts mine:" in error
