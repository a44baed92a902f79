"""The table of sets: label maps, titles, and what the real files give."""

from pathlib import Path

import pytest

from spark_ner.errors import TrainingDataError
from spark_ner.train.corpora import EVALUATION, TRAINING, TYPES, UNSURE, Corpus, load


def write(tmp_path: Path, content: str) -> Path:
    (tmp_path / "a.conll").write_text(content)
    return tmp_path


def test_labels_are_mapped_dropped_or_unsure(tmp_path):
    corpus = Corpus(name="a", files=("a.conll",), labels={"city": "LOC", "gene": UNSURE, "date": ""})
    ((sentence,),) = load(corpus, write(tmp_path, "Oslo B-city\nBRCA1 B-gene\n1999 B-date\n"))
    assert [(s.start, s.label) for s in sentence.spans] == [(0, "LOC"), (5, UNSURE)]


def test_a_label_off_the_map_is_an_error_naming_the_nearest(tmp_path):
    corpus = Corpus(name="a", files=("a.conll",), labels={"location": "LOC"})
    with pytest.raises(
        TrainingDataError, match=r"a\.conll, sentence from line 1: label 'locaton' .* did you mean 'location'"
    ):
        load(corpus, write(tmp_path, "Oslo B-locaton\n"))


def test_titles_are_cut_off_names(tmp_path):
    corpus = Corpus(name="a", files=("a.conll",), labels={"PER": "PER"}, strip_titles=True)
    ((sentence,),) = load(corpus, write(tmp_path, "old B-PER\nMr. I-PER\nBingley I-PER\nsaw O\nSir B-PER\n"))
    assert [sentence.text[s.start : s.end] for s in sentence.spans] == ["Bingley"]


def test_no_test_part_is_trained_on():
    trained = {file for corpus in TRAINING for file in corpus.files}
    assert not trained & {file for corpus in EVALUATION for file in corpus.files}
    assert not [f for f in trained if "test" in f or "restricted" in f or "silver" in f or "sec-" in f]


@pytest.mark.shared
def test_the_real_sets_have_the_counts_of_their_readme(shared_dir):
    wikigold = next(c for c in TRAINING if c.name == "wikigold")
    sentences = [s for d in load(wikigold, shared_dir / "data") for s in d]
    labels = [span.label for s in sentences for span in s.spans]
    assert len(sentences) == 1696
    assert {t: labels.count(t) for t in TYPES} == {"LOC": 1014, "PER": 934, "ORG": 898, "MISC": 712}
