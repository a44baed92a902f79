"""What becomes of labeled rows that cannot be read: an error at once, or counted, listed and left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_ner.errors import TrainingDataError

MOST_LISTED = 100


@dataclass
class BadRows:
    """Rows that were left out: how many, and of the first of them place and reason, without any text.

    A row is a sentence of a CoNLL-style file, a line or item of a JSON file, or a row of a table.
    """

    count: int = 0
    listed: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    def add(self, place: str, reason: str) -> None:
        """Count one; the first MOST_LISTED are kept."""
        self.count += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append((place, reason))


def reject(bad: BadRows | None, place: str, reason: str) -> None:
    """Note a bad row; TrainingDataError where bad rows are not collected."""
    if bad is None:
        raise TrainingDataError(f"{place}: {reason}")
    bad.add(place, reason)
