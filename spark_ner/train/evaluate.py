"""Strict span precision, recall and F1: an entity counts where start, end and label are all right.

Gold spans are characters of texts joined from the tokens, so any callable from texts to entities
can be scored, whatever its tokens are. A prediction inside an UNSURE gold span (a user handle) is struck
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_ner.train.corpora import EVALUATION, UNSURE, load
from spark_ner.train.data import Labeled, Span, join
from spark_ner.types import Entity

SCORED_TYPES = ("PER", "ORG", "LOC")

Annotate = Callable[[list[str]], Iterable[Sequence[Entity] | Sequence[Span] | None]]


@dataclass(frozen=True)
class Score:
    """Counts of right, predicted and gold entities, and what follows from them, in percent."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right."""
        return 100 * self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold entities that were found."""
        return 100 * self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both; 0 where nothing is right."""
        return 200 * self.right / (self.predicted + self.gold) if self.right else 0.0

    def to_dict(self) -> dict[str, float]:
        """Rounded figures and the counts behind them, for JSON."""
        figures = {name: round(getattr(self, name), 2) for name in ("precision", "recall", "f1")}
        return {**figures, "right": self.right, "predicted": self.predicted, "gold": self.gold}


@dataclass(frozen=True)
class Report:
    """The score of all types together (micro average) and of each."""

    overall: Score
    by_label: Mapping[str, Score]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**self.overall.to_dict(), "by_label": {k: s.to_dict() for k, s in self.by_label.items()}}


@dataclass(frozen=True)
class GoldSet:
    """The texts of a test set by unit: as single sentences, and as whole documents where the set has them.

    A `document` has one sentence a line, a `one-line document` has blanks between its sentences.
    """

    name: str
    texts: Mapping[str, tuple[Labeled, ...]]


def gold_sets(root: str | Path) -> list[GoldSet]:
    """The five test sets, joined into raw text."""
    sets = []
    for corpus in EVALUATION:
        documents = load(corpus, root)
        texts = {"sentence": tuple(s for d in documents for s in d)}
        if len(documents) > 1:  # the set marks documents
            for unit, separator in (("document", "\n"), ("one-line document", " ")):
                texts[unit] = tuple(join(d, separator) for d in documents)
        sets.append(GoldSet(corpus.name, texts))
    return sets


def score(
    predicted: Iterable[Sequence[Entity] | Sequence[Span] | None],
    gold: Sequence[Labeled],
    *,
    types: Sequence[str] = SCORED_TYPES,
) -> Report:
    """Strict scores of predictions, one sequence a text; ValueError where their numbers differ."""
    counts = {label: [0, 0, 0] for label in types}
    for entities, text in zip(predicted, gold, strict=True):
        unsure = [s for s in text.spans if s.label == UNSURE]
        mine = {
            (e.start, e.end, e.label)
            for e in entities or ()
            if e.label in counts and not any(s.start <= e.start and e.end <= s.end for s in unsure)
        }
        true = {(s.start, s.end, s.label) for s in text.spans if s.label in counts}
        for column, found in enumerate((mine & true, mine, true)):
            for *_, label in found:
                counts[label][column] += 1
    by_label = {label: Score(*c) for label, c in counts.items()}
    return Report(Score(*(sum(c[i] for c in counts.values()) for i in range(3))), by_label)


def evaluate(annotate: Annotate, sets: Sequence[GoldSet]) -> dict[str, dict[str, Report]]:
    """Report by set and unit; a unit that a set does not have is absent."""
    return {
        gold.name: {u: score(annotate([t.text for t in texts]), texts) for u, texts in gold.texts.items()}
        for gold in sets
    }


def table(reports: Mapping[str, Mapping[str, Report]]) -> str:
    """A readable table, one line a set and unit."""
    head = f"{'set':<20}{'unit':<19}{'P':>7}{'R':>7}{'F1':>7}" + "".join(f"{t:>8}" for t in SCORED_TYPES)
    lines = [head]
    for name, units in reports.items():
        for unit, report in units.items():
            o = report.overall
            labels = "".join(f"{report.by_label[t].f1:>8.2f}" for t in SCORED_TYPES)
            lines.append(f"{name:<20}{unit:<19}{o.precision:>7.2f}{o.recall:>7.2f}{o.f1:>7.2f}{labels}")
    return "\n".join(lines)
