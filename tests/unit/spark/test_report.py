"""What people read: the report, the progress line, the bar."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from spark_ner.sinks.runs import RUNS_SCHEMA, InputFile, RunRow, row_values
from spark_ner.spark.figures import figures
from spark_ner.spark.progress import bar_line, batch_line
from spark_ner.spark.report import Report

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROW = RunRow(
    run_id="r",
    query_id="q",
    batch_id=0,
    fingerprint="f",
    mode="incremental",
    started=NOON,
    finished=NOON,
    documents=10,
    words=2_000,
    tokens=3_000,
    padded_tokens=4_000,
    entities=7,
    nulls=1,
    errors=2,
    seconds=4.0,
    longest_task_s=3.0,
    median_task_s=1.5,
    n_tasks=5,
    batch_tokens=1_024,
    device="cpu",
    model="fake",
    model_digest="d",
    variant="",
    package_version="0",
)


def test_the_report_adds_up_micro_batches() -> None:
    text = str(Report("r", "q", "out", "runs", 4.0, (ROW, replace(ROW, batch_id=1, longest_task_s=9.0))))
    assert "documents  20  (null 2, failed 4)" in text
    assert "words      4,000  in 4.0 s: 1,000 words/s" in text
    assert "padding 25.0 %" in text
    assert "tasks      10 in 2 micro-batch(es); longest 9.0 s, median 1.5 s" in text
    assert "table      out" in text


def test_a_rerun_says_that_nothing_is_new() -> None:
    assert "nothing new" in str(Report("r", "q", "out", "runs", 4.0))


def test_a_replay_is_told_and_is_not_new() -> None:
    text = str(Report("r", "q", "out", "runs", 4.0, (replace(ROW, replayed=True),)))
    assert "replayed   1 micro-batch(es) that the table had: 10 documents, none added" in text
    assert "nothing new" in text


def test_rewritten_files_are_told() -> None:
    assert "1 file(s) changed after they were read" in str(
        Report("r", "q", "out", "runs", 4.0, rewritten=(InputFile("a.json", 1, 2),))
    )


def test_a_json_line_a_micro_batch() -> None:
    tree = json.loads(batch_line(replace(ROW, words_per_s=512.34567)))
    assert (tree["batch_id"], tree["words"], tree["entities"], tree["words_per_s"]) == (0, 2_000, 7, 512.346)


def test_the_bar_fills() -> None:
    assert bar_line(1, 2, batches=3, words=4_000).startswith("[" + "#" * 15 + "." * 15 + "] 1/2 tasks")
    assert bar_line(0, 0, batches=0, words=0).startswith("[" + "." * 30 + "]")


def test_the_runs_row_has_a_value_for_each_column() -> None:
    values = dict(
        zip(RUNS_SCHEMA.names, row_values(replace(ROW, files=(InputFile("a", 1, 2),))), strict=True)
    )
    assert values["files"] == [("a", 1, 2)]
    assert (values["batch_id"], values["words"], values["gpu_busy_share"]) == (0, 2_000, None)


def test_observed_figures_become_a_row() -> None:
    numbers = figures(
        {"documents": 3, "tokens": 90, "padded_tokens": 100, "nulls": 2, "errors": 0, "malformed": 1}
    )
    assert (numbers["documents"], numbers["errors"], numbers["nulls"]) == (3, 1, 1)
    assert abs((numbers["padding_share"] or 0) - 0.1) < 1e-9
    empty = figures({"documents": None, "task_s": None})
    assert (empty["documents"], empty["task_s"], empty["padding_share"]) == (0, 0.0, None)
