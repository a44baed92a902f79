"""Secrets in arguments and messages (case C70)."""

from __future__ import annotations

import logging

import pytest

from spark_ner.masking import MASK, MaskingFilter, is_secret, mask_text, mask_tree, secrets_of

FORMS = ["--sink.password=zz9", "--sink.password 'zz9'", '--sink.password "zz9"', "--sink.password zz9"]


@pytest.mark.parametrize("form", FORMS)
def test_every_spelling_is_masked(form: str) -> None:
    masked = mask_text(f"run with {form} --input docs")
    assert "zz9" not in masked
    assert MASK in masked
    assert masked.endswith("--input docs")


@pytest.mark.parametrize("form", FORMS)
def test_a_dump_that_is_cut_afterwards_shows_no_part_of_a_secret(form: str) -> None:
    # The secret straddles the cut: cut first, and its beginning would be left without its end.
    dump = "x" * (4_096 - len(form) + 1) + " " + form
    assert "zz" not in mask_text(dump)[:4_096]


def test_dictionaries_and_assignments_are_masked() -> None:
    assert mask_text("{'sink.password': 'zz9', 'a': 1}") == "{'sink.password': ***, 'a': 1}"
    assert mask_text("fs.s3a.secret.key=zz9;x=1") == "fs.s3a.secret.key=***;x=1"


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    secrets = secrets_of(
        ["--sink.password", "'zz9'", "--set", "read_options.apiToken=q/7", "--input", "docs"]
    )
    assert set(secrets) == {"'zz9'", "zz9", "q/7"}
    assert (
        mask_text("cannot open jdbc:x?p=zz9 with q/7", secrets=secrets)
        == f"cannot open jdbc:x?p={MASK} with {MASK}"
    )


@pytest.mark.parametrize(
    "name", ["password", "sink.password", "api_key", "apiKey", "fs.s3a.secret.key", "SAS-Token"]
)
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["batch_tokens", "engine.window_tokens", "keep", "tokenizer", "keyboard", "input"]
)
def test_names_that_hold_no_secret(name: str) -> None:
    assert not is_secret(name)


def test_prose_stays() -> None:
    assert mask_text("the key is wrong; batch_tokens=1024") == "the key is wrong; batch_tokens=1024"


def test_a_tree_is_masked_at_any_depth() -> None:
    assert mask_tree({"a": {"password": "zz9", "b": 1}}) == {"a": {"password": MASK, "b": 1}}


def test_log_records_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(MaskingFilter(["q7"]))
    logging.getLogger("t").warning("opened %s with q7", "--sink.password=zz9")
    assert caplog.records[0].getMessage() == f"opened --sink.password={MASK} with {MASK}"
