"""Which starts are refused: table, input and checkpoint must belong together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ner.errors import CheckpointError
from spark_ner.spark.lineage import Marker, State, decide

OLD = Marker(query_id="fp-1", fingerprint="fp", input="in", output="out")
NEW = replace(OLD, query_id="fp-2")


def _decide(
    marker: Marker | None,
    *,
    recorded: str | None,
    planned: int | None = None,
    has_checkpoint: bool = False,
    recover: bool = False,
) -> Marker:
    state = State(
        marker=marker, has_checkpoint=has_checkpoint, planned=planned, ended=planned, recorded=recorded
    )
    return decide(state, NEW, checkpoint="cp", recover=recover)


def test_a_first_start_begins_a_query() -> None:
    assert _decide(None, recorded=None) == NEW


def test_a_later_start_goes_on() -> None:
    assert _decide(OLD, recorded="fp-1", planned=3, has_checkpoint=True) == OLD


def test_a_start_killed_before_the_table_knew_goes_on() -> None:
    assert _decide(OLD, recorded=None) == OLD


def test_a_lost_checkpoint_is_refused_unless_recovered() -> None:
    with pytest.raises(CheckpointError, match="--recover"):
        _decide(None, recorded="fp-1")
    assert _decide(None, recorded="fp-1", recover=True) == replace(NEW, recovers="fp-1")


def test_a_recovery_killed_before_the_table_knew_goes_on() -> None:
    begun = replace(NEW, recovers="fp-1")
    assert _decide(begun, recorded="fp-1") == begun


@pytest.mark.parametrize(
    ("marker", "recorded", "planned", "says"),
    [
        (None, None, 0, "not made by this job"),
        (replace(OLD, fingerprint="other"), None, 0, "belongs to another job"),
        (replace(OLD, output="elsewhere"), "fp-1", 0, "belongs to another job, from in to elsewhere"),
        (OLD, None, 0, "made anew"),
        (OLD, "fp-9", 0, "another checkpoint"),
        (OLD, "fp-9", None, "another checkpoint"),
    ],
)
def test_foreign_checkpoints_are_refused(
    marker: Marker | None, recorded: str | None, planned: int | None, says: str
) -> None:
    with pytest.raises(CheckpointError, match=says):
        _decide(marker, recorded=recorded, planned=planned, has_checkpoint=True)


def test_a_replay_is_possible_only_after_a_batch_that_did_not_end() -> None:
    def state(planned: int | None, ended: int | None) -> State:
        return State(marker=OLD, has_checkpoint=True, planned=planned, ended=ended, recorded="fp-1")

    assert not state(None, None).may_replay
    assert not state(4, 4).may_replay
    assert state(4, 3).may_replay
    assert state(0, None).may_replay
