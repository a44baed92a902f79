"""Sets as users describe them: TOML to documents; what is bad is named with its place, or counted."""

import gzip
import tomllib

import pytest

from spark_ner.config import from_dict
from spark_ner.errors import ConfigError, TrainingDataError
from spark_ner.train.align import Targets
from spark_ner.train.corpus import UNSURE, BadRows, Corpus, Fields, describe, label_types, load
from spark_ner.train.data import HANDLE, ConllFormat
from tests.fixtures.labeled import conll, jsonl, line, named

SECRET = "Hildegard"


def test_a_corpus_is_built_from_a_toml_section(tmp_path):
    section = tomllib.loads(
        """
        [[data]]
        name = "cards"
        files = ["*.conll"]
        labels = { person = "PER", date = "", thing = "?" }
        annotates = ["PER"]
        unlisted = "drop"
        share = 2
        form = { token = 1, tag = 2, comment = "#" }
        [data.fields]
        start = "from"
        """
    )
    corpus = from_dict(Corpus, section["data"][0])
    assert corpus == Corpus(
        name="cards",
        files=("*.conll",),
        labels={"person": "PER", "date": "", "thing": UNSURE},
        annotates=("PER",),
        unlisted="drop",
        share=2.0,
        form=ConllFormat(token=1, tag=2, comment="#"),
        fields=Fields(start="from"),
    )
    (tmp_path / "a.conll").write_text("# id\n1 Ada person\n2 x O\n3 lamp thing\n4 1999 date\n5 y misc\n")
    ((text,),) = load(corpus, tmp_path)
    assert (text.text, named(text)) == ("Ada x lamp 1999 y", [("Ada", "PER"), ("lamp", UNSURE)])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"label": {}}, r"unknown key 'label'; did you mean 'labels'\?"),
        ({"format": "csv"}, "'csv' is not one of 'conll', 'jsonl', 'table'"),
        ({"labels": {"a": 1}}, "labels.a: str wanted, got 1"),
        ({"share": 0}, "set 'x': share must be above 0, got 0"),
        ({"share": float("nan")}, "share must be above 0, got nan"),
        (
            {"labels": {"p": "PER"}, "annotates": ["PRE"]},
            r"annotates has 'PRE', which no .*did you mean 'PER'\?",
        ),
        ({"format": "table", "files": ["a", "b"]}, "one table's name or path is wanted in files, got 2"),
        ({"fields": {"tokens": "t"}}, "tokens and tags are wanted together, got 't' and ''"),
        ({"fields": {"start": ""}}, "fields.start must not be empty"),
        ({"fields": {"spans": "text"}}, "two different names are wanted, got 'text' twice"),
    ],
)
def test_an_impossible_section_is_refused(tree, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(Corpus, {"name": "x", "files": ["a"], **tree})


def test_a_table_needs_a_session():
    with pytest.raises(ConfigError, match="set 'x': a table is read with a Spark session"):
        load(Corpus(name="x", files=("t",), format="table"), ".")


def test_patterns_are_expanded_in_order_and_no_file_is_read_twice(tmp_path):
    for name in ("b.conll", "a.conll", "sub/c.conll", "[x].conll"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name} B-FILE\n")

    def read(*files: str) -> list[str]:
        return [d[0].text for d in load(Corpus(name="a", files=files), tmp_path)]

    assert read("[ab].conll") == ["a.conll", "b.conll"]
    assert read("**/*.conll", "b.conll") == ["[x].conll", "a.conll", "b.conll", "sub/c.conll"]
    assert read("[x].conll") == ["[x].conll"]
    names = [f"n{number:02}.txt" for number in range(30)]
    for name in names[::2] + names[::-2]:
        (tmp_path / name).write_text(f"{name} O\n")
    assert read("*.txt") == names
    assert read(str(tmp_path / "sub" / "*.conll")) == ["sub/c.conll"]


def test_files_that_are_not_there_are_named(tmp_path):
    (tmp_path / "sub").mkdir()
    for pattern, message in (
        ("*.tsv", r"set 'a': labelled data not found: .*\*\.tsv"),
        ("sub", "it is a folder: name its files"),
    ):
        with pytest.raises(TrainingDataError, match=message):
            load(Corpus(name="a", files=(pattern,)), tmp_path)
    with pytest.raises(TrainingDataError, match="set 'a' names no files"):
        load(Corpus(name="a", files=()), tmp_path)


@pytest.mark.parametrize("kind", ["conll", "jsonl"])
def test_a_broken_gzip_file_is_named(tmp_path, kind):
    text = b"Oslo\tB-LOC\n" if kind == "conll" else line("Oslo").encode()
    good = gzip.compress(text * 9)
    for raw in (good[:-12], text, good[:10] + b"\xff" * 30):
        (tmp_path / "a.gz").write_bytes(raw)
        with pytest.raises(TrainingDataError, match=r"a\.gz, after line \d+: not a whole gzip file"):
            load(Corpus(name="a", files=("a.gz",), format=kind), tmp_path)


def test_an_empty_map_leaves_labels_as_they_are(tmp_path):
    content = "12 B-tax-percent\n% I-tax-percent\nx B-O\ny O\nz B-Ü-1\n"
    ((text,),) = conll(tmp_path, content)
    assert named(text) == [("12 %", "tax-percent"), ("x", "O"), ("z", "Ü-1")]


def test_bioes_and_crlf_and_a_mark_of_byte_order(tmp_path):
    content = "\ufeffNew B-LOC\r\nYork E-LOC\r\nRome S-LOC\r\n\r\n\r\nAda S-PER\r\n"
    ((one, other),) = conll(tmp_path, content)
    assert named(one) == [("New York", "LOC"), ("Rome", "LOC")]
    assert named(other) == [("Ada", "PER")]


def test_a_nul_and_a_strange_blank_belong_to_their_token(tmp_path):
    ((text,),) = conll(tmp_path, "a\0b O\n\0c O\n10\xa0000 B-SUM\n\u3000 B-SUM\n")
    assert text.text == "a\0b \0c 10\xa0000 \u3000"
    assert named(text) == [("10\xa0000", "SUM"), ("\u3000", "SUM")]


def test_handles_are_unsure_whatever_the_map(tmp_path):
    for labels in ({}, {"LOC": "LOC"}):
        form = ConllFormat(join_handles=True)
        ((text,),) = conll(tmp_path, "@ O\nada O\nin O\nOslo B-LOC\n", form=form, labels=labels)
        assert named(text) == [("@ada", UNSURE), ("Oslo", "LOC")]
    ((text,),) = conll(tmp_path, "@ada O\n", form=form, labels={HANDLE: "USER"})
    assert named(text) == [("@ada", "USER")]


def test_a_label_off_the_map_is_an_error_or_no_entity(tmp_path):
    content = line("Oslo, 1999", [0, 4, "city"], [6, 10, "yaer"])
    with pytest.raises(
        TrainingDataError, match=r"a\.jsonl, line 1: label 'yaer' is not in the map; did .*'year'"
    ):
        jsonl(tmp_path, content, labels={"city": "LOC", "year": ""})
    ((text,),) = jsonl(tmp_path, content, labels={"city": "LOC", "year": ""}, unlisted="drop")
    assert named(text) == [("Oslo", "LOC")]


def test_the_marker_and_the_types_that_a_set_marks_reach_the_targets(tmp_path, tokenizer):
    corpus = Corpus(
        name="a", files=("a.conll",), labels={"p": "PER", "l": "LOC", "x": UNSURE}, annotates=("PER",)
    )
    (tmp_path / "a.conll").write_text("ada B-p\nin O\noslo B-l\nacme B-x\n")
    ((text,),) = load(corpus, tmp_path)
    targets = Targets(("LOC", "PER"), [frozenset(corpus.annotates)])
    rows = targets.allowed[targets.of(tokenizer.encode([text.text]), text, frozenset(corpus.annotates))]
    allowed = [[t for t, ok in zip(targets.scheme.tags, row, strict=True) if ok] for row in rows]
    assert allowed == [["B-PER"], ["O", "B-LOC", "I-LOC"], ["B-LOC"], []]


@pytest.mark.parametrize(
    ("sentence", "place", "reason"),
    [
        (b"Hildegard B-PER\nalone\nx\n", "line 5", "2 columns wanted (token and tag), got 1"),
        (b"alone\nHildegard B-PER\n", "line 4", "2 columns wanted (token and tag), got 1"),
        (b"Hildegard\tB-PER\n\tO\n", "line 5", "the token is empty"),
        (b"Hildegard\t\n", "line 4", "the tag is empty"),
        (b"Hildegard B-PER\nx\xff O\n", "line 5", "not UTF-8 (invalid start byte)"),
        (b"x O\nHildegard PER\n", "sentence from line 4", "tag 'PER' has no known prefix"),
        (b"Hildegard Z-PER\n", "sentence from line 4", "tag 'Z-PER' has no known prefix"),
        (b"Hildegard B-PRE\n", "sentence from line 4", "label 'PRE' is not in the map; did you mean 'PER'?"),
    ],
)
def test_a_bad_sentence_is_named_or_left_out_alone(tmp_path, sentence, place, reason):
    content = b"Oslo B-LOC\nRome B-LOC\n\n" + sentence + b"\nAda B-PER\n"
    labels = {"LOC": "LOC", "PER": "PER"}
    with pytest.raises(TrainingDataError) as caught:
        conll(tmp_path, content, labels=labels)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)
    assert str(tmp_path / "a.conll") in str(caught.value)
    assert "line " in str(caught.value)
    bad = BadRows()
    assert [s.text for d in conll(tmp_path, content, labels=labels, bad=bad) for s in d] == [
        "Oslo Rome",
        "Ada",
    ]
    ((found, why),) = bad.listed
    assert (bad.count, found) == (1, f"{tmp_path / 'a.conll'}, {place}")
    assert reason in why


def test_unknown_prefixes_throughout_spoil_the_whole_file(tmp_path):
    for bad in (None, BadRows()):
        with pytest.raises(
            TrainingDataError, match=r"no tag has a known prefix .*'b-PER', 'i-PER' \(line 1\)"
        ):
            conll(tmp_path, "Ada b-PER\nNovak i-PER\n\nx O\n", bad=bad)


def test_tags_that_are_types_are_read_so_when_bad_rows_are_left_out(tmp_path):
    bad = BadRows()
    ((text,),) = conll(tmp_path, "Ada PER\nNovak PER\nx O\nOslo LOC\n\nalone\n", bad=bad)
    assert (named(text), len(bad)) == ([("Ada Novak", "PER"), ("Oslo", "LOC")], 1)


@pytest.mark.parametrize("content", ["", "\n \n\r\n", "\ufeff"])
@pytest.mark.parametrize("read", [conll, jsonl])
def test_an_empty_set_is_refused_even_where_bad_rows_are_left_out(tmp_path, read, content):
    with pytest.raises(TrainingDataError, match=rf"a\.{read.__name__}: the file holds no (token|row)"):
        read(tmp_path, content)
    bad = BadRows()
    with pytest.raises(
        TrainingDataError, match=r"set 'a' holds no text .*; the first of 1 bad rows is .*holds no"
    ):
        read(tmp_path, content, bad=bad)
    assert bad.count == 1


def test_an_empty_file_beside_others_is_a_bad_row(tmp_path):
    (tmp_path / "b.jsonl").write_text("[]")
    bad = BadRows()
    assert len(jsonl(tmp_path, line("a"), files=("a.jsonl", "b.jsonl"), bad=bad)) == 1
    assert bad.listed == [(str(tmp_path / "b.jsonl"), "the file holds no row")]


def test_a_set_of_bad_rows_alone_is_refused(tmp_path):
    with pytest.raises(
        TrainingDataError, match="set 'a' holds no text that can be read; the first of 2 bad rows"
    ):
        conll(tmp_path, "alone\n\nalone\n", bad=BadRows())


def test_documents_are_described_and_their_types_listed(tmp_path):
    one = conll(tmp_path, "-DOCSTART- O\n\nAda B-PER\n\nOslo B-LOC\nx B-?\n\n-DOCSTART- O\n\ny B-ämne\n")
    other = jsonl(tmp_path, line("Oslo", [0, 4, "Zoo"]))
    assert describe(one) == {
        "documents": 2,
        "sentences": 3,
        "entities": {"?": 1, "LOC": 1, "PER": 1, "ämne": 1},
    }
    assert label_types([one, other]) == ("LOC", "PER", "Zoo", "ämne")
    assert label_types([other, one]) == label_types([one, other])
    assert label_types([[]]) == ()
