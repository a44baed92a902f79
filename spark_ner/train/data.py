"""Labelled text: CoNLL-style files into sentences with character spans, sentences joined into texts.

A text is its tokens joined by one blank; spans count code points of it. Nothing here knows a tokenizer: a
corpus says where its names are, `align` says which of the engine's words that makes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spark_ner.errors import LabelError, TrainingDataError
from spark_ner.labels import LabelScheme

HANDLE = "@handle"  # the label of a user handle, where a reader was told to join handles

DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True)
class Span:
    """`text[start:end]` is an entity of this label (the corpus's own label until a map was applied)."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Labeled:
    """A text with its entities in order."""

    text: str
    spans: tuple[Span, ...] = ()


Document = tuple[Labeled, ...]  # sentences in order


@dataclass(frozen=True, kw_only=True)
class ConllFormat:
    """Which columns of a CoNLL-style file hold token and tag, and what its comment lines mean.

    Columns are divided by tabs where the line has one, else by blanks; a negative column counts from the end.
    """

    token: int = 0
    tag: int = -1
    comment: str | None = None  # lines that begin so are no tokens
    document: str | None = None  # comment lines that begin so start a document
    skip_empty_tokens: bool = False  # a line with a tag and no token is passed over; else it is an error
    join_handles: bool = False  # `@` and the name after it become one token, labelled HANDLE


@dataclass
class _Reader:
    """State of one pass over a file: tokens and tags of the open sentence, sentences of the open document."""

    file: Path
    form: ConllFormat
    documents: list[list[tuple[list[str], list[str], int]]] = field(default_factory=lambda: [[]])
    tokens: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    line: int = 0

    def end_sentence(self) -> None:
        if self.tokens:
            self.documents[-1].append((self.tokens, self.tags, self.line))
            self.tokens, self.tags = [], []

    def end_document(self) -> None:
        self.end_sentence()
        if self.documents[-1]:
            self.documents.append([])

    def take(self, line: str, number: int) -> None:
        form = self.form
        if not line.strip(" \t"):
            self.end_sentence()
        elif form.document and line.startswith(form.document):
            self.end_document()
        elif form.comment and line.startswith(form.comment):
            return
        elif line.startswith(DOCUMENT_START):
            self.end_document()
        else:
            columns = line.split("\t") if "\t" in line else line.split()
            need = max(c + 1 if c >= 0 else -c for c in (form.token, form.tag))
            if len(columns) < max(need, 2):
                raise TrainingDataError(
                    f"{self.file}, line {number}: {max(need, 2)} columns wanted (token and tag), "
                    f"got {len(columns)}"
                )
            token, tag = columns[form.token].strip(" "), columns[form.tag].strip(" ")
            if not token and tag and form.skip_empty_tokens:
                return
            if not token or not tag:
                what = "token" if not token else "tag"
                raise TrainingDataError(f"{self.file}, line {number}: the {what} is empty")
            if not self.tokens:
                self.line = number
            self.tokens.append(token)
            self.tags.append(tag)


def read_conll(file: str | Path, form: ConllFormat | None = None) -> list[Document]:
    """Documents of a CoNLL-style file (`.gz` too), in order; IOB1, IOB2, BILOU and tags without prefix alike.

    A corpus without document marks is one document. A quotation mark is a token like any other.

    Raises:
        TrainingDataError: names file and line of what cannot be read, or says that the file holds no token.
    """
    path = Path(file)
    reader = _Reader(path, form or ConllFormat())
    for number, line in enumerate(_lines(path), 1):
        reader.take(line, number)
    reader.end_document()
    documents = [document for document in reader.documents if document]
    if not documents:
        raise TrainingDataError(f"{path} holds no token")
    if reader.form.join_handles:
        documents = [[(*_join_handles(tokens, tags), n) for tokens, tags, n in d] for d in documents]
    scheme = _scheme(path, {tag for d in documents for _, tags, _ in d for tag in tags})
    return [tuple(_labeled(tokens, tags, scheme) for tokens, tags, _ in d) for d in documents]


def join(sentences: Sequence[Labeled], separator: str = " ") -> Labeled:
    """One text of several, spans moved along; `separator` is one character."""
    spans: list[Span] = []
    at = 0
    for sentence in sentences:
        spans.extend(Span(s.start + at, s.end + at, s.label) for s in sentence.spans)
        at += len(sentence.text) + 1
    return Labeled(separator.join(s.text for s in sentences), tuple(spans))


def _lines(path: Path) -> Iterator[str]:
    """Lines without their ends; only LF and CRLF divide lines (a token may be U+2028)."""
    if not path.is_file():
        raise TrainingDataError(f"labelled data not found: {path}")
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            yield line.removesuffix(b"\r").decode("utf-8").removeprefix("\ufeff" if number == 1 else "\0")
        except UnicodeDecodeError as error:
            raise TrainingDataError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None


def _join_handles(tokens: list[str], tags: list[str]) -> tuple[list[str], list[str]]:
    joined: list[str] = []
    kept: list[str] = []
    for token, tag in zip(tokens, tags, strict=True):
        if joined and joined[-1] == "@":
            joined[-1], kept[-1] = "@" + token, f"B-{HANDLE}"
        else:
            joined.append(token)
            kept.append(f"B-{HANDLE}" if token.startswith("@") and len(token) > 1 else tag)
    return joined, kept


def _scheme(path: Path, tags: set[str]) -> LabelScheme | None:
    """The file's tag scheme; None where every tag is O."""
    if tags <= {"O"}:
        return None
    try:
        return LabelScheme.from_tags(sorted(tags))
    except LabelError as error:
        raise TrainingDataError(f"{path}: {error}") from None


def _labeled(tokens: list[str], tags: list[str], scheme: LabelScheme | None) -> Labeled:
    text = " ".join(tokens)
    if scheme is None:
        return Labeled(text)
    ends = np.cumsum([len(t) + 1 for t in tokens]) - 1
    starts = ends - [len(t) for t in tokens]
    ids = np.array([scheme.tags.index(tag) for tag in tags])
    first = np.zeros(len(ids), bool)
    first[0] = True
    spans = zip(*scheme.spans(ids, first), strict=True)
    return Labeled(text, tuple(Span(int(starts[a]), int(ends[b]), scheme.types[k]) for a, b, k in spans))
