"""The command line without Spark: help, exit codes, one sentence for the user's errors."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from spark_ner import cli
from spark_ner.errors import CommitError, ConfigError


def _raising(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("no"), 2), (CommitError("no"), 1), (ValueError("no"), 1), (KeyboardInterrupt(), 130)],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert cli.guarded(_raising(error), []) == code


def test_a_user_error_is_one_sentence_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    cli.guarded(_raising(ConfigError("settings: unknown key 'windw'; did you mean 'window'?")), [])
    assert capsys.readouterr().err == "spark-ner: settings: unknown key 'windw'; did you mean 'window'?\n"


def test_debug_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    cli.guarded(_raising(ConfigError("no")), ["--debug"])
    assert "Traceback" in capsys.readouterr().err


def test_no_form_of_a_secret_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["annotate", "--set", "sink.password=zz9", "--debug"]
    cli.guarded(_raising(ValueError("cannot log in with zz9")), arguments)
    assert "zz9" not in capsys.readouterr().err


def test_unknown_flags_are_refused_without_their_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["annotate", "--sink.password=zz9", "--input", "x"]
    monkeypatch.setattr(sys, "argv", ["spark-ner", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "zz9" not in error
    assert "--sink.password=***" in error


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["anotate"]) == 2
    assert "did you mean 'annotate'?" in capsys.readouterr().err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("annotate", "models"))


def test_help_of_annotate_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["annotate", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    flags = "input format text-unit text-col id-col keep output runs-table shape mode model checkpoint run-id"
    for flag in [*flags.split(), *["task-seconds", "recover", "config", "set", "dry-run", "debug", "show"]]:
        assert f"--{flag}" in text


def test_missing_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["annotate", "--output", "x"]) == 2
    assert "--input" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["engine.window_tokens=510", "engine.overlap_tokens=510"], "at most 509"),
        (["engine.window_tokens=510", "engine.overlap_tokens=512"], "at most 509"),
        (["engine.overlap_tokens=-1"], "at least 0"),
        (["engine.windw=256"], "unknown key 'windw'; did you mean 'window_tokens'?"),
        (["model='no such model'"], "neither a shipped model"),
    ],
)
def test_settings_are_refused_before_spark_starts(
    settings: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases C65 and C67."""
    monkeypatch.setattr(cli, "_annotate", lambda config, flags: pytest.fail("Spark was started"))
    sets = [part for setting in settings for part in ("--set", setting)]
    assert cli.main(["annotate", "--input", "i", "--output", "o", "--model", "fake", *sets]) == 2
    assert says in capsys.readouterr().err
