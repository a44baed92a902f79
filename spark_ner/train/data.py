"""Labelled text: CoNLL-style files into sentences with character spans, sentences joined into texts.

A text is its tokens joined by one blank; spans count code points of it. Nothing here knows a tokenizer: a
corpus says where its names are, `align` says which of the engine's words that makes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spark_ner.errors import LabelError, TrainingDataError
from spark_ner.labels import LabelScheme
from spark_ner.train.bad_rows import BadRows, reject

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


class _Sentence(NamedTuple):
    tokens: list[str]
    tags: list[str]
    lines: list[int]  # of each token


@dataclass
class _Reader:
    """State of one pass over a file: the open sentence, and the sentences of each document."""

    file: Path
    form: ConllFormat
    bad: BadRows | None
    documents: list[list[_Sentence]] = field(default_factory=lambda: [[]])
    sentence: _Sentence = field(default_factory=lambda: _Sentence([], [], []))
    spoiled: bool = False  # the open sentence holds a line that cannot be read
    n_spoiled: int = 0

    def end_sentence(self) -> None:
        if self.sentence.tokens and not self.spoiled:
            self.documents[-1].append(self.sentence)
        self.sentence, self.spoiled = _Sentence([], [], []), False

    def end_document(self) -> None:
        self.end_sentence()
        if self.documents[-1]:
            self.documents.append([])

    def spoil(self, number: int, reason: str) -> None:
        if not self.spoiled:
            self.spoiled = True
            self.n_spoiled += 1
            reject(self.bad, f"{self.file}, line {number}", reason)

    def take(self, number: int, raw: bytes) -> None:
        form = self.form
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.spoil(number, f"not UTF-8 ({error.reason})")
            return
        if not line.strip(" \t"):
            self.end_sentence()
        elif form.document and line.startswith(form.document):
            self.end_document()
        elif form.comment and line.startswith(form.comment):
            return
        elif line.startswith(DOCUMENT_START):
            self.end_document()
        else:
            self._take_token(number, line)

    def _take_token(self, number: int, line: str) -> None:
        form = self.form
        # Not at other white space: it may be (part of) a token.
        columns = line.split("\t") if "\t" in line else [c for c in line.split(" ") if c]
        need = max(2, *(c + 1 if c >= 0 else -c for c in (form.token, form.tag)))
        if len(columns) < need:
            self.spoil(number, f"{need} columns wanted (token and tag), got {len(columns)}")
            return
        token, tag = columns[form.token].strip(" "), columns[form.tag].strip(" ")
        if token and tag:
            self.sentence.tokens.append(token)
            self.sentence.tags.append(tag)
            self.sentence.lines.append(number)
        elif token or not tag or not form.skip_empty_tokens:
            self.spoil(number, f"the {'tag' if token else 'token'} is empty")


def read_conll(
    file: str | Path,
    form: ConllFormat | None = None,
    *,
    bad: BadRows | None = None,
    convert: Callable[[Labeled], Labeled] = lambda sentence: sentence,
) -> list[Document]:
    """Documents of a CoNLL-style file (`.gz` too), in order; IOB1, IOB2, BILOU and tags without prefix alike.

    A corpus without document marks is one document. A quotation mark is a token like any other.

    Args:
        file: its path.
        form: its columns and comments.
        bad: collects the sentences that cannot be read; None raises at the first.
        convert: applied to each sentence; its TrainingDataError makes the sentence a bad one.

    Raises:
        TrainingDataError: names file and line of what cannot be read, or says that the file holds no token.
    """
    path = Path(file)
    reader = _Reader(path, form or ConllFormat(), bad)
    for number, line in numbered_lines(path):
        reader.take(number, line)
    reader.end_document()
    documents = [document for document in reader.documents if document]
    if not documents and not reader.n_spoiled:
        reject(bad, str(path), "the file holds no token")
    if reader.form.join_handles:
        documents = [[_join_handles(sentence) for sentence in d] for d in documents]
    scheme = _scheme(path, documents, bad)
    read = []
    for document in documents:
        kept = []
        for sentence in document:
            place = f"{path}, sentence from line {sentence.lines[0]}"
            try:
                kept.append(convert(labeled(sentence.tokens, sentence.tags, scheme)))
            except TrainingDataError as error:
                reject(bad, place, str(error))
        if kept:
            read.append(tuple(kept))
    return read


def labeled(tokens: Sequence[str], tags: Sequence[str], scheme: LabelScheme | None) -> Labeled:
    """Tokens, one tag each, as a text with its entities; None is a scheme without any.

    Raises:
        TrainingDataError: a tag is not in the scheme; the message names no place.
    """
    text = " ".join(tokens)
    if scheme is None or not tokens:
        return Labeled(text)
    if strange := set(tags) - set(scheme.tags):
        raise TrainingDataError(f"tag {min(strange)!r} has no known prefix (B, I, E, L, S, U)")
    ends = np.cumsum([len(t) + 1 for t in tokens]) - 1
    starts = ends - [len(t) for t in tokens]
    ids = np.array([scheme.tags.index(tag) for tag in tags])
    first = np.zeros(len(ids), bool)
    first[0] = True
    spans = zip(*scheme.spans(ids, first), strict=True)
    return Labeled(text, tuple(Span(int(starts[a]), int(ends[b]), scheme.types[k]) for a, b, k in spans))


@lru_cache(maxsize=4096)
def has_prefix(tag: str) -> bool:
    """Whether a tag can stand in a scheme with prefixes: O, or a known prefix, a hyphen and a type."""
    try:
        LabelScheme.from_tags(sorted({tag, "B-type"}))
    except LabelError:
        return False
    return True


def join(sentences: Sequence[Labeled], separator: str = " ") -> Labeled:
    """One text of several, spans moved along; `separator` is one character."""
    spans: list[Span] = []
    at = 0
    for sentence in sentences:
        spans.extend(Span(s.start + at, s.end + at, s.label) for s in sentence.spans)
        at += len(sentence.text) + 1
    return Labeled(separator.join(s.text for s in sentences), tuple(spans))


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of a file (`.gz` too) from 1, without their ends and a mark of byte order at the file's head.

    Only LF and CRLF divide lines (a token may be U+2028).

    Raises:
        TrainingDataError: the file is absent, or no gzip file where its name says so.
    """
    if not path.is_file():
        raise TrainingDataError(f"labelled data not found: {path}")
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TrainingDataError(f"{path}, after line {number}: not a whole gzip file ({error})") from None


def _join_handles(sentence: _Sentence) -> _Sentence:
    joined = _Sentence([], [], [])
    for token, tag, line in zip(*sentence, strict=True):
        if joined.tokens and joined.tokens[-1] == "@":
            joined.tokens[-1], joined.tags[-1] = "@" + token, f"B-{HANDLE}"
        else:
            joined.tokens.append(token)
            joined.tags.append(f"B-{HANDLE}" if token.startswith("@") and len(token) > 1 else tag)
            joined.lines.append(line)
    return joined


def _scheme(path: Path, documents: list[list[_Sentence]], bad: BadRows | None) -> LabelScheme | None:
    """The file's tag scheme; None where every tag is O.

    A tag without prefix beside tags with one is an error; where bad rows are collected, no tag of the scheme.
    """
    lines: dict[str, int] = {}
    for sentence in (s for d in documents for s in d):
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            lines.setdefault(tag, line)
    tags = sorted(lines)
    if set(tags) <= {"O"}:
        return None
    try:
        return LabelScheme.from_tags(tags)
    except LabelError as error:
        strange = [tag for tag in tags if not has_prefix(tag)]
        if bad is not None and (rest := [t for t in tags if t not in strange and t != "O"]):
            return LabelScheme.from_tags(["O", *rest])
        where = f" (line {lines[strange[0]]})" if strange else ""
        raise TrainingDataError(f"{path}: {error}{where}") from None
