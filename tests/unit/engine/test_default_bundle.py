"""The embedded model through its public entry: what its users must be able to rely on."""

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
