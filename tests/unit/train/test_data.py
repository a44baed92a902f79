"""CoNLL-style files, tricky ones included, to sentences with character spans."""

import gzip

import pytest

from spark_ner.errors import TrainingDataError
from spark_ner.train.data import HANDLE, ConllFormat, Labeled, Span, join, read_conll

UNER = ConllFormat(token=1, tag=2, comment="# ", document="# newdoc")


def read(tmp_path, content: str | bytes, form: ConllFormat | None = None, name: str = "a.conll"):
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_conll(file, form)


def named(sentence: Labeled) -> list[tuple[str, str]]:
    return [(sentence.text[s.start : s.end], s.label) for s in sentence.spans]


def test_a_quotation_mark_is_a_token(tmp_path):  # case C55
    ((sentence,),) = read(tmp_path, '"\tO\nOslo\tB-LOC\n"\tO\nRome\tB-LOC\n')
    assert sentence.text == '" Oslo " Rome'
    assert named(sentence) == [("Oslo", "LOC"), ("Rome", "LOC")]


def test_four_columns_docstart_and_several_sentences(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\n\nSOCCER NN B-NP O\nJAPAN NNP B-NP B-LOC\n\n"
        "Nadim NNP B-NP B-PER\nLadki NNP I-NP I-PER\n"
        "\n-DOCSTART- -X- O O\n\nOslo NNP B-NP B-LOC\n"
    )
    documents = read(tmp_path, text)
    assert [[s.text for s in d] for d in documents] == [["SOCCER JAPAN", "Nadim Ladki"], ["Oslo"]]
    assert named(documents[0][1]) == [("Nadim Ladki", "PER")]


def test_iob1_and_iob2_and_stray_inside_tags(tmp_path):
    ((iob1,),) = read(tmp_path, "Rome I-LOC\nOslo B-LOC\nand O\nKyoto I-LOC\nAcme I-ORG\n")
    assert named(iob1) == [("Rome", "LOC"), ("Oslo", "LOC"), ("Kyoto", "LOC"), ("Acme", "ORG")]
    ((iob2,),) = read(tmp_path, "New B-LOC\nYork I-LOC\nRome B-LOC\n")
    assert named(iob2) == [("New York", "LOC"), ("Rome", "LOC")]
    ((bilou,),) = read(tmp_path, "New B-LOC\nYork L-LOC\nRome U-LOC\n")
    assert named(bilou) == [("New York", "LOC"), ("Rome", "LOC")]


def test_index_column_comments_and_documents(tmp_path):
    text = (
        "# newdoc id = a\n# sent_id = a-1\n# text = # Oslo\n1\t#\tO\t-\t-\n2\tOslo\tB-LOC\t-\tann\n\n"
        "# sent_id = a-2\n1\tyes\tO\t-\t-\n\n# newdoc id = b\n# sent_id = b-1\n1\tno\tO\t-\t-\n\n"
    )
    documents = read(tmp_path, text, UNER)
    assert [[s.text for s in d] for d in documents] == [["# Oslo", "yes"], ["no"]]
    assert named(documents[0][0]) == [("Oslo", "LOC")]


def test_crlf_bom_gzip_and_no_last_line_end(tmp_path):
    content = "\ufeffOslo\tB-LOC\r\nis\tO\r\n\r\nRome\tB-LOC".encode()
    documents = read(tmp_path, gzip.compress(content), name="a.tsv.gz")
    assert [[named(s) for s in d] for d in documents] == [[[("Oslo", "LOC")], [("Rome", "LOC")]]]
    assert documents[0][0].text == "Oslo is"


def test_a_strange_blank_is_a_token_and_divides_no_line(tmp_path):
    ((sentence,),) = read(tmp_path, "a\tO\n\u2028\tO\n\x85\tO\nOslo\tB-LOC\n")
    assert sentence.text == "a \u2028 \x85 Oslo"
    assert sentence.spans == (Span(6, 10, "LOC"),)


def test_offsets_count_code_points(tmp_path):
    ((sentence,),) = read(tmp_path, "😓\tO\ne\u0301\tO\nOslo\tB-LOC\n")
    assert sentence.spans == (Span(5, 9, "LOC"),)


def test_handles_are_joined_and_set_apart(tmp_path):
    form = ConllFormat(join_handles=True)
    ((sentence,),) = read(tmp_path, "Bbl\tO\n@\tB-PER\nada_l\tB-PER\nhi\tO\n@acme\tB-ORG\n@\tO\n", form)
    assert sentence.text == "Bbl @ada_l hi @acme @"
    assert named(sentence) == [("@ada_l", HANDLE), ("@acme", HANDLE)]


def test_a_file_of_o_alone_has_no_spans(tmp_path):
    ((sentence,),) = read(tmp_path, "a O\nb O\n")
    assert sentence == Labeled("a b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Oslo\tB-LOC\nalone\n", r"a\.conll, line 2: 2 columns wanted \(token and tag\), got 1"),
        ("\tO\n", "line 1: the token is empty"),
        ("Oslo\t\n", "line 1: the tag is empty"),
        (b"Oslo\tB-LOC\n\xff\tO\n", "line 2: not UTF-8"),
        ("\n\n-DOCSTART- O\n", "holds no token"),
        ("Oslo\tB-LOC\nx\tLOC\n", "a.conll: tag 'LOC' has no known prefix"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path, content, message):
    with pytest.raises(TrainingDataError, match=message):
        read(tmp_path, content)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(TrainingDataError, match=r"not found: .*gone\.conll"):
        read_conll(tmp_path / "gone.conll")


def test_an_empty_token_may_be_passed_over(tmp_path):
    ((sentence,),) = read(tmp_path, "a\tO\n\tO\nb\tO\n", ConllFormat(skip_empty_tokens=True))
    assert sentence.text == "a b"


def test_joined_texts_keep_their_spans():
    joined = join(
        [Labeled("in Oslo", (Span(3, 7, "LOC"),)), Labeled("yes"), Labeled("Rome", (Span(0, 4, "LOC"),))]
    )
    assert joined.text == "in Oslo yes Rome"
    assert named(joined) == [("Oslo", "LOC"), ("Rome", "LOC")]
    lines = join([Labeled("yes"), Labeled("Rome", (Span(0, 4, "LOC"),))], "\n")
    assert (lines.text, named(lines)) == ("yes\nRome", [("Rome", "LOC")])
