"""Rows of JSON lines and tables to texts with spans; a bad one is named with its place, or counted."""

import gzip
import json

import numpy as np
import pytest

from spark_ner.errors import TrainingDataError
from spark_ner.train.bad_rows import MOST_LISTED
from spark_ner.train.corpus import BadRows, Corpus, Fields, load, rows_to_labeled
from spark_ner.train.data import Labeled, Span
from spark_ner.train.rows import row_to_labeled
from tests.fixtures.labeled import jsonl, line, named

SECRET = "Hildegard"
TOKENS = Fields(tokens="tokens", tags="tags")
PLAIN = Fields(tokens="tokens", tags="tags", prefixed=False)


def test_offsets_are_code_points(tmp_path):
    text = "👩‍👩‍👧 e\u0301 in 東京\r\n𝔘𝔫𝔦"
    spans = [{"start": 12, "end": 14, "label": "LOC"}, [16, 19, "O"], {"end": 8, "start": 6, "label": "é-x"}]
    raw = json.dumps({"text": text, "spans": spans}, ensure_ascii=False) + "\r\n\r\n" + line("plain")
    (one,), (other,) = jsonl(tmp_path, "\ufeff" + raw)
    assert one.text == text
    assert named(one) == [("e\u0301", "é-x"), ("東京", "LOC"), ("𝔘𝔫𝔦", "O")]
    assert other == Labeled("plain")
    assert jsonl(tmp_path, line(text, *spans))[0] == (one,)  # escaped surrogate pairs


def test_spans_may_begin_or_end_with_a_blank_and_touch(tmp_path):
    ((text,),) = jsonl(tmp_path, line("Oslo Rome", [4, 9, "LOC"], [0, 4, "LOC"]))
    assert text.spans == (Span(0, 4, "LOC"), Span(4, 9, "LOC"))


BAD_ROWS = {
    '{"text": "a", "spans": [}': "not JSON (Expecting value at column 25)",
    '{"text": "a"': "not JSON",
    '["Hildegard", [[0, 1, "PER"]]]': "an object with fields was wanted, got a list",
    '"Hildegard"': "an object with fields was wanted, got a string",
    "null": "an object with fields was wanted, got null",
    '{"txt": "Hildegard", "spans": []}': "field \"text\" missing; there are: txt, spans; did you mean 'txt'?",
    '{"text": "Hildegard"}': 'field "spans" missing; there are: text',
    '{"text": null, "spans": []}': "text: a string was wanted, got null",
    '{"text": 7, "spans": []}': "text: a string was wanted, got a whole number",
    '{"text": "Hildegard", "spans": null}': "spans: a list was wanted, got null",
    '{"text": "Hildegard", "spans": {"start": 0}}': "spans: a list was wanted, got an object",
    '{"text": "Hildegard", "spans": "PER"}': "spans: a list was wanted, got a string",
    line(SECRET, 3): "spans[0]: a list was wanted, got a whole number",
    line(SECRET, [0, 1]): "spans[0]: [start, end, label] was wanted, got 2 items",
    line(SECRET, {"start": 0, "end": 9}): 'field "spans[0].label" missing; there are: start, end',
    line(SECRET, [0, 9, "PER"], [0.0, 1, "PER"]): "spans[1][0]: a whole number was wanted, got a fraction",
    line(SECRET, {"start": False, "end": 1, "label": "PER"}): "spans[0].start: a whole number was wanted",
    line(SECRET, [0, True, "PER"]): "spans[0][1]: a whole number was wanted, got a boolean",
    line(SECRET, ["0", 1, "PER"]): "spans[0][0]: a whole number was wanted, got a string",
    line(SECRET, [None, 1, "PER"]): "spans[0][0]: a whole number was wanted, got null",
    line(SECRET, [0, 10**30, "PER"]): "spans[0][1]: an offset was wanted, got a number beyond 64 bits",
    line(SECRET, [0, 10, "PER"]): "spans[0]: 0 <= start < end <= 9 (code points) was wanted, got 0 and 10",
    line(SECRET, [-1, 3, "PER"]): "got -1 and 3",
    line(SECRET, [4, 4, "PER"]): "got 4 and 4",
    line(SECRET, [4, 3, "PER"]): "got 4 and 3",
    line("", [0, 0, "PER"]): "0 <= start < end <= 0",
    line("Ada \u3000 Lovelace", [3, 6, "PER"]): "spans[0]: [3, 6) holds nothing but blanks",
    line(SECRET, [0, 3, ""]): "spans[0][2]: the label is empty",
    line(SECRET, [0, 3, None]): "spans[0][2]: a string was wanted, got null",
    line(SECRET, [0, 3, "\ud800"]): "spans[0][2]: half of a surrogate pair at offset 0",
    line("Hildegard \udc00 x"): "text: half of a surrogate pair at offset 10",
    line(SECRET, [0, 5, "PER"], [4, 9, "LOC"]): "entities must not overlap, got [0, 5) and [4, 9)",
    line(SECRET, [0, 9, "PER"], [2, 3, "LOC"], [5, 6, "LOC"]): "overlap, got [0, 9) and [2, 3)",
    line(SECRET, [0, 5, "PER"], [0, 5, "PER"]): "overlap, got [0, 5) and [0, 5)",
    "[" * 100_000: "not JSON that can be read",
    '{"text": "Hildegard", "n": ' + "9" * 5000 + "}": "not JSON that can be read",
}  # fmt: skip


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS.items(), ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_named_with_its_line_or_counted(tmp_path, row, reason):
    content = line("Oslo", [0, 4, "LOC"]) + "\n" + row.strip() + "\n" + line("end")
    with pytest.raises(TrainingDataError) as caught:
        jsonl(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'a.jsonl'}, line 3: ")
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)
    bad = BadRows()
    assert [d[0].text for d in jsonl(tmp_path, content, bad=bad)] == ["Oslo", "end"]
    ((place, listed),) = bad.listed
    assert (len(bad), place) == (1, f"{tmp_path / 'a.jsonl'}, line 3")
    assert f"{place}: {listed}" == str(caught.value)


def test_invalid_utf8_is_a_bad_row(tmp_path):
    content = line("Oslo").encode() + b'{"text": "Hildegard\xff", "spans": []}\n' + line("end").encode()
    with pytest.raises(
        TrainingDataError, match=r"a\.jsonl, line 2: not UTF-8 \(invalid start byte at byte 19\)"
    ):
        jsonl(tmp_path, content)
    bad = BadRows()
    assert len(jsonl(tmp_path, content, bad=bad)) == 2
    assert len(bad) == 1


def test_an_overlap_that_the_map_takes_away_is_none(tmp_path):
    content = line("New York City", [0, 13, "city"], [4, 8, "inner"])
    ((text,),) = jsonl(tmp_path, content, labels={"city": "LOC", "inner": ""})
    assert named(text) == [("New York City", "LOC")]


def test_bad_rows_are_all_counted_and_a_hundred_listed(tmp_path):
    bad = BadRows()
    jsonl(tmp_path, line("a") + "{}\n" * (MOST_LISTED + 50), bad=bad)
    assert (bad.count, len(bad.listed)) == (150, 100)
    assert bad.listed[-1][0].endswith("line 101")


def test_a_row_is_named_by_its_id(tmp_path):
    bad = BadRows()
    rows = ({"id": i, "text": 1} for i in ("a-1", 7, None, True, "x" * 99))
    jsonl(tmp_path, line("a") + "\n".join(map(json.dumps, rows)), bad=bad, fields=Fields(id="id"))
    assert [place.partition(", ")[2] for place, _ in bad.listed] == [
        *("line 2 (id 'a-1')", "line 3 (id 7)", "line 4", "line 5", "line 6"),
    ]


def test_one_json_array_is_read_as_rows(tmp_path):
    content = '\n [ {"text": "Oslo",\n "spans": [[0, 4, "LOC"]]},\n 5, {"text": "b", "spans": []}]\n'
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(content.encode()))
    corpus = Corpus(name="a", files=("a.json.gz",), format="jsonl")
    bad = BadRows()
    assert [named(d[0]) for d in load(corpus, tmp_path, bad=bad)] == [[("Oslo", "LOC")], []]
    assert bad.listed == [
        (f"{tmp_path / 'a.json.gz'}, row 2", "an object with fields was wanted, got a whole number")
    ]
    for broken, where in ((content.replace("5,", "5"), "line 4, column"), ("[1]\n[2]\n", "line 2, column 1")):
        with pytest.raises(TrainingDataError, match=rf"not JSON \(.*{where}.*one array of rows"):
            jsonl(tmp_path, broken, bad=BadRows())


@pytest.mark.parametrize(
    ("fields", "tags", "wanted"),
    [
        (TOKENS, ["B-LOC", "I-LOC", "O", "B-O"], [("New York", "LOC"), ("😓", "O")]),
        (
            TOKENS,
            ["I-LOC", "B-LOC", "O", "I-tax-percent"],
            [("New", "LOC"), ("York", "LOC"), ("😓", "tax-percent")],
        ),
        (TOKENS, ["B-LOC", "E-LOC", "O", "S-PER"], [("New York", "LOC"), ("😓", "PER")]),
        (TOKENS, ["B-LOC", "L-LOC", "O", "U-PER"], [("New York", "LOC"), ("😓", "PER")]),
        (TOKENS, ["O"] * 4, []),
        (PLAIN, ["LOC", "LOC", "O", "E-mail"], [("New York", "LOC"), ("😓", "E-mail")]),
        (PLAIN, ["O", "X", "LABEL_0", "O"], [("York", "X"), ("in", "LABEL_0")]),
    ],
)
def test_tokens_and_tags_make_a_text(fields, tags, wanted):
    text = row_to_labeled({"tokens": ["New", "York", "in", "😓"], "tags": tags}, fields)
    assert (text.text, named(text)) == ("New York in 😓", wanted)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"tags": ["O"]}, "tags: as many as tokens were wanted, got 1 for 2"),
        ({"tags": ["O"] * 3}, "got 3 for 2"),
        ({"tags": None}, "tags: a list was wanted, got null"),
        ({"tags": ["O", None]}, "tags[1]: a string was wanted, got null"),
        ({"tags": [0, 1]}, "tags[0]: a string was wanted, got a whole number"),
        ({"tags": ["O", ""]}, "tags[1]: empty"),
        ({"tokens": ["Hildegard", " "]}, "tokens[1]: empty"),
        ({"tokens": "Hildegard"}, "tokens: a list was wanted, got a string"),
        ({"tags": ["B-PER", "PER"]}, "tags[1]: 'PER' is not O and has no known prefix"),
        ({"tags": ["O", "Z-PER"]}, "say fields.prefixed = false where tags are types"),
        ({"tags": ["O", "B-"]}, "tags[1]: 'B-' is not O"),
    ],
)
def test_tokens_and_tags_that_do_not_fit_are_a_bad_row(row, reason):
    with pytest.raises(TrainingDataError) as caught:
        row_to_labeled({"tokens": ["Hildegard", "x"], "tags": ["O", "O"], **row}, TOKENS)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


def test_rows_as_pandas_hands_them_out_are_read_too():
    span = {"start": np.int32(0), "end": np.int64(4), "label": "LOC"}
    row = {"text": "Oslo", "spans": np.array([span], object)}
    (text,) = rows_to_labeled([("row 1", row)], Corpus(name="a", files=("t",), format="table"))
    assert text == Labeled("Oslo", (Span(0, 4, "LOC"),))
    assert type(text.spans[0].start) is int
    tagged = {"tokens": np.array(["Oslo"], object), "tags": np.array(["B-LOC"], object)}
    assert row_to_labeled(tagged, TOKENS) == text
    with pytest.raises(TrainingDataError, match="a whole number was wanted, got a boolean"):
        row_to_labeled({"text": "Oslo", "spans": [[np.False_, 4, "LOC"]]}, Fields())
