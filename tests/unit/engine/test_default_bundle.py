"""The embedded model through its public entry: what its users must be able to rely on."""

import time

import pytest

from spark_ner import load_engine


@pytest.fixture(scope="module")
def engine():
    return load_engine("default")


def found(engine, text: str) -> list[tuple[str, str]]:
    return [(text[e.start : e.end], e.label) for e in engine.annotate([text])[0]]


def test_names_on_lines_of_their_own_are_entities_of_their_own(engine):
    text = "Attendees:\nAnn Lee\nBob Stone\r\nCarla Diaz\n\nAcme Corp\nOslo"
    assert found(engine, text) == [
        ("Ann Lee", "PER"),
        ("Bob Stone", "PER"),
        ("Carla Diaz", "PER"),
        ("Acme Corp", "ORG"),
        ("Oslo", "LOC"),
    ]


def test_a_name_goes_on_behind_a_line_break_in_mid_sentence(engine):
    text = "She flew from New\nYork to Paris with John\r\nSmith of the World Bank yesterday."
    assert found(engine, text) == [
        ("New\nYork", "LOC"),
        ("Paris", "LOC"),
        ("John\r\nSmith", "PER"),
        ("World Bank", "ORG"),
    ]


@pytest.mark.parametrize("run", ["\n", "\r\n", " \n", "\n\u2028"])
def test_a_megabyte_of_line_breaks_between_names_takes_no_time_and_moves_nothing(engine, run):
    text = "Ann Lee" + run * (1_000_000 // len(run)) + "Bob Stone"
    began = time.process_time()
    assert found(engine, text) == [("Ann Lee", "PER"), ("Bob Stone", "PER")]
    assert time.process_time() - began < 5  # with an added token that strips blanks: hours
