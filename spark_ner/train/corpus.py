"""A labeled set as its user describes it: which files, in what form, which label becomes which type."""

from __future__ import annotations

import glob
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal

from spark_ner.config import nearest
from spark_ner.errors import ConfigError, TrainingDataError
from spark_ner.train.bad_rows import BadRows, reject
from spark_ner.train.data import HANDLE, ConllFormat, Document, Labeled, Span, read_conll
from spark_ner.train.rows import Fields, json_rows, row_to_labeled

__all__ = [
    "UNSURE",
    "BadRows",
    "Corpus",
    "Fields",
    "describe",
    "label_types",
    "load",
    "relabel",
    "rows_to_labeled",
]

UNSURE = "?"  # may be a name of any type, or none: left out of the loss and of the score

_MOST_LABEL = 40  # characters of a strange label that an error shows
# Words before a name that CoNLL's convention leaves outside it.
_TITLES = frozenset(
    word
    for line in (
        "mr mrs miss ms mr. mrs. ms. dr dr. sir lady lord the captain colonel major general uncle aunt",
        "master madame mademoiselle monsieur professor prof. rev. reverend father old poor dear little young",
        "king queen prince princess duke duchess count countess m. mme. st. saint judge squire doctor a an",
    )
    for word in line.split()
)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """One labeled set: a `[[data]]` section of a training's TOML file.

    `share` is how often its texts are drawn in an epoch, on average; the sentences of a set that is not
    `ordered` are shuffled before they are joined.
    """

    name: str
    files: tuple[str, ...]  # paths or patterns below the root; of a table its one name or path
    format: Literal["conll", "jsonl", "table"] = "conll"
    labels: Mapping[str, str] = field(
        default_factory=dict
    )  # to our type, "" (no entity) or "?"; none: as they are
    unlisted: Literal["error", "drop"] = "error"  # a label that is not in a map: drop makes it no entity
    annotates: tuple[str, ...] = ()  # our types that it marks everywhere, others are unknown in it; none: all
    form: ConllFormat = field(default_factory=ConllFormat)
    fields: Fields = field(default_factory=Fields)  # of a JSON row, or a table
    share: float = 1.0
    ordered: bool = False
    strip_titles: bool = False  # cut English titles and articles off the names

    def __post_init__(self) -> None:
        if not (self.share > 0 and math.isfinite(self.share)):
            raise ConfigError(f"set {self.name!r}: share must be above 0, got {self.share}")
        if self.format == "table" and len(self.files) != 1:
            raise ConfigError(
                f"set {self.name!r}: one table's name or path is wanted in files, got {len(self.files)}"
            )
        ours = set(self.labels.values())
        for name in self.annotates:
            if ours and name not in ours:
                raise ConfigError(
                    f"set {self.name!r}: annotates has {name!r}, which no label becomes{nearest(name, ours)}"
                )


def load(corpus: Corpus, root: str | Path, *, bad: BadRows | None = None) -> list[Document]:
    """Documents of a set in files, with our labels; a row of a JSON file is a document of one sentence.

    Args:
        corpus: the set; one in a table is read by `tables.load_table`, which takes a Spark session.
        root: what the set's files are relative to.
        bad: collects the rows that cannot be read; None raises at the first.

    Raises:
        TrainingDataError: a file is not there, a row is bad, or there is no good one.
    """
    if corpus.format == "table":
        raise ConfigError(f"set {corpus.name!r}: a table is read with a Spark session (tables.load_table)")
    documents: list[Document] = []
    for file in _files(corpus, Path(root)):
        if corpus.format == "conll":
            documents += read_conll(file, corpus.form, bad=bad, convert=partial(relabel, corpus))
        else:
            documents += [(text,) for text in rows_to_labeled(json_rows(file, bad=bad), corpus, bad=bad)]
    return not_empty(corpus, documents, bad)


def not_empty(corpus: Corpus, documents: list[Document], bad: BadRows | None) -> list[Document]:
    """The documents; TrainingDataError where there are none: leaving out rows must not leave out a set."""
    if not documents:
        first = f"; the first of {len(bad)} bad rows is {': '.join(bad.listed[0])}" if bad else ""
        raise TrainingDataError(f"set {corpus.name!r} holds no text that can be read{first}")
    return documents


def rows_to_labeled(
    rows: Iterable[tuple[str, object]], corpus: Corpus, *, bad: BadRows | None = None
) -> Iterator[Labeled]:
    """Place and value of each row to a text with our labels, one by one; bad rows are left out.

    Depends on its arguments alone and knows no Spark, so a job can call it in its executors, too, on the rows
    of `batch.to_pylist()`.

    Args:
        rows: where each row is, for its error, and the row, a mapping by field name.
        corpus: its `fields`, `labels` and `unlisted` say how a row is read.
        bad: collects the rows that cannot be read; None raises at the first.
    """
    for place, row in rows:
        try:
            yield relabel(corpus, row_to_labeled(row, corpus.fields))
        except TrainingDataError as error:
            reject(bad, place + _named(row, corpus.fields.id), str(error))


def relabel(corpus: Corpus, sentence: Labeled) -> Labeled:
    """The sentence with our labels in place of the set's.

    Raises:
        TrainingDataError: a label is not in the map, or two entities overlap; the message names no place.
    """
    spans: list[Span] = []
    for span in sentence.spans:
        label = _ours(corpus, span.label)
        start = _strip_titles(sentence.text, span) if corpus.strip_titles else span.start
        if label and start < span.end:
            spans.append(Span(start, span.end, label))
    for one, other in pairwise(spans):
        if other.start < one.end:
            raise TrainingDataError(
                f"entities must not overlap, got [{one.start}, {one.end}) and [{other.start}, {other.end})"
            )
    return Labeled(sentence.text, tuple(spans))


def describe(documents: Iterable[Document]) -> dict[str, object]:
    """Counts for the run's log: documents, sentences, and entities by label, UNSURE ones too."""
    kept = list(documents)
    entities = Counter(span.label for document in kept for text in document for span in text.spans)
    return {
        "documents": len(kept),
        "sentences": sum(len(document) for document in kept),
        "entities": dict(sorted(entities.items())),
    }


def label_types(sets: Iterable[Iterable[Document]]) -> tuple[str, ...]:
    """The distinct types in the documents of several sets, sorted by code points; UNSURE is none."""
    found = {s.label for documents in sets for document in documents for text in document for s in text.spans}
    return tuple(sorted(found - {UNSURE}))


def _files(corpus: Corpus, root: Path) -> Sequence[Path]:
    """The set's files, each once, in the order of its patterns; those of one pattern sorted by name."""
    if not corpus.files:
        raise TrainingDataError(f"set {corpus.name!r} names no files")
    found: dict[Path, None] = {}
    for pattern in corpus.files:
        path = root / pattern
        names = [pattern] if path.is_file() else sorted(glob.glob(pattern, root_dir=root, recursive=True))
        files = [root / name for name in names if (root / name).is_file()]
        if not files:
            hint = "; it is a folder: name its files, as in '*.conll'" if path.is_dir() else ""
            raise TrainingDataError(f"set {corpus.name!r}: labelled data not found: {path}{hint}")
        found.update(dict.fromkeys(files))
    return list(found)


def _ours(corpus: Corpus, label: str) -> str:
    if not corpus.labels or label in corpus.labels:
        return corpus.labels.get(label, UNSURE if label == HANDLE else label)
    if label == HANDLE:
        return UNSURE
    if corpus.unlisted == "drop":
        return ""
    raise TrainingDataError(
        f"label {label[:_MOST_LABEL]!r} is not in the map{nearest(label[:_MOST_LABEL], corpus.labels)}"
    )


def _named(row: object, name: str) -> str:
    """The row's own name for its error, where it has a short one."""
    value = row.get(name) if name and isinstance(row, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, str)) or len(shown := repr(value)) > 80:
        return ""
    return f" ({name} {shown})"


def _strip_titles(text: str, span: Span) -> int:
    """Where the name itself begins after titles and articles; the span's end where nothing is left."""
    start = span.start
    while start < span.end:
        word, blank, _ = text[start : span.end].partition(" ")
        if word.lower() not in _TITLES:
            break
        start += len(word) + len(blank)
    return start
