"""Strict span scores: against seqeval, and where handles are struck out."""

import numpy as np
import pytest

from spark_ner.labels import LabelScheme, iob2_tags
from spark_ner.train.corpora import UNSURE
from spark_ner.train.data import Labeled, Span
from spark_ner.train.evaluate import GoldSet, Score, evaluate, score, table

TAGS = iob2_tags(("PER", "ORG", "LOC"))
SCHEME = LabelScheme.from_tags(TAGS)


def test_micro_scores_equal_seqeval_in_strict_mode():
    metrics = pytest.importorskip("seqeval.metrics", reason="needs the test extra")
    from seqeval.scheme import IOB2

    rng = np.random.default_rng(4)
    gold, mine = [], []
    for _ in range(200):
        true = rng.integers(0, len(TAGS), rng.integers(1, 12))
        guess = np.where(rng.random(len(true)) < 0.6, true, rng.integers(0, len(TAGS), len(true)))
        gold.append([TAGS[i] for i in _legal(true)])
        mine.append([TAGS[i] for i in _legal(guess)])
    texts = [Labeled("x " * len(tags), tuple(_spans(tags))) for tags in gold]
    report = score([_spans(tags) for tags in mine], texts)
    strict = {"mode": "strict", "scheme": IOB2}
    assert report.overall.f1 == pytest.approx(100 * metrics.f1_score(gold, mine, **strict))
    assert report.overall.precision == pytest.approx(100 * metrics.precision_score(gold, mine, **strict))
    assert report.overall.recall == pytest.approx(100 * metrics.recall_score(gold, mine, **strict))
    per_label = metrics.classification_report(gold, mine, output_dict=True, **strict)
    for label in ("PER", "ORG", "LOC"):
        assert report.by_label[label].f1 == pytest.approx(100 * per_label[label]["f1-score"])


def _legal(ids: np.ndarray) -> list[int]:
    """A stray inside tag turned into a begin tag, so that strict mode drops nothing."""
    out: list[int] = []
    for i in ids.tolist():
        inside = i > 0 and i % 2 == 0
        out.append(i - 1 if inside and (not out or out[-1] not in (i, i - 1)) else i)
    return out


def _spans(tags: list[str]) -> list[Span]:
    first = np.arange(len(tags)) == 0
    begins, ends, kinds = SCHEME.spans(np.array([TAGS.index(t) for t in tags]), first)
    return [
        Span(2 * a, 2 * b + 1, SCHEME.types[k])
        for a, b, k in zip(begins.tolist(), ends.tolist(), kinds, strict=True)
    ]


def test_predictions_on_handles_are_struck_out_and_other_types_not_scored():
    gold = Labeled("@ada met Acme", (Span(0, 4, UNSURE), Span(9, 13, "ORG")))
    found = [Span(1, 4, "PER"), Span(9, 13, "ORG"), Span(5, 8, "MISC")]
    assert score([found], [gold]).overall == Score(1, 1, 1)
    assert score([[Span(1, 8, "PER")]], [gold]).overall == Score(0, 1, 1)


def test_nothing_predicted_and_nothing_gold_is_zero():
    assert score([[], None], [Labeled("a"), Labeled("b")]).overall.f1 == 0.0


def test_missing_predictions_are_an_error():
    with pytest.raises(ValueError, match="longer"):
        score([[]], [Labeled("a"), Labeled("b")])


def test_sets_are_scored_by_sentence_and_by_document():
    one, two = Labeled("Oslo", (Span(0, 4, "LOC"),)), Labeled("Rome", (Span(0, 4, "LOC"),))
    spans = (Span(0, 4, "LOC"), Span(5, 9, "LOC"))
    lines, one_line = Labeled("Oslo\nRome", spans), Labeled("Oslo Rome", spans)
    units = {"sentence": (one, two), "document": (lines,), "one-line document": (one_line,)}
    sets = [GoldSet("a", units), GoldSet("b", {"sentence": (one,)})]
    reports = evaluate(lambda texts: [[Span(0, 4, "LOC")] for _ in texts], sets)
    assert reports["a"]["sentence"].overall == Score(2, 2, 2)
    assert reports["a"]["document"].overall == Score(1, 1, 2)
    assert list(reports["a"]) == ["sentence", "document", "one-line document"]
    assert list(reports["b"]) == ["sentence"]
    assert "66.67" in table(reports)
