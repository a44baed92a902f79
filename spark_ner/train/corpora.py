"""The open English sets behind the embedded model: files, labels, what each annotates, how much of it.

Never here: a test part, anything of restricted-eval, gmb-silver (no stated licence), sec-filings (its
convention that "Borrower" and "Lender" are persons harms a general model).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_ner.config import nearest
from spark_ner.errors import TrainingDataError
from spark_ner.train.data import HANDLE, ConllFormat, Document, Labeled, Span, read_conll

TYPES = ("PER", "ORG", "LOC", "MISC")
UNSURE = "?"  # may be a name of any type, or none: left out of the loss and of the score

_ALL = frozenset(TYPES)
_NO_MISC = frozenset({"PER", "ORG", "LOC"})
_UNER = ConllFormat(token=1, tag=2, comment="# ", document="# newdoc")
_TWEETS = ConllFormat(join_handles=True, skip_empty_tokens=True)  # btc/h has one line without a token

_PLAIN = {"PER": "PER", "ORG": "ORG", "LOC": "LOC", "MISC": "MISC"}
_WNUT = {
    "person": "PER",
    "location": "LOC",
    "corporation": "ORG",
    "group": "ORG",
    "product": "MISC",
    "creative-work": "MISC",
}
_CROSSNER = {
    **dict.fromkeys(("person", "politician", "scientist", "musicalartist", "writer", "researcher"), "PER"),
    **dict.fromkeys(("organisation", "politicalparty", "university", "band"), "ORG"),
    **dict.fromkeys(("location", "country"), "LOC"),
    **dict.fromkeys(("misc", "event", "election", "award", "album", "song", "book", "poem"), "MISC"),
    **dict.fromkeys(("product", "conference", "academicjournal", "magazine"), UNSURE),
    **dict.fromkeys(
        ("astronomicalobject", "chemicalcompound", "chemicalelement", "protein", "enzyme"), UNSURE
    ),
    **dict.fromkeys(("algorithm", "task", "field", "metrics", "theory", "discipline", "programlang"), UNSURE),
    **dict.fromkeys(("musicgenre", "musicalinstrument", "literarygenre"), UNSURE),
}
_LITBANK = {"PER": "PER", "GPE": "LOC", "LOC": "LOC", "FAC": UNSURE, "ORG": "ORG", "VEH": UNSURE}
_PRESIDIO = {
    "PERSON": "PER",
    "GPE": "LOC",
    "ORGANIZATION": "ORG",
    "NRP": "MISC",
    **dict.fromkeys(("STREET_ADDRESS", "TITLE", "DOMAIN_NAME", "EMAIL_ADDRESS"), UNSURE),
}
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
    """One labelled set; `labels` maps its labels to ours, UNSURE or None (no entity), others are errors.

    `annotates` are the types it marks everywhere: any other type is unknown there, not O. `share` is how
    often its texts are drawn in an epoch, on average; the sentences of a set that is not `ordered` are
    shuffled before they are joined.
    """

    name: str
    files: tuple[str, ...]
    labels: Mapping[str, str | None]
    annotates: frozenset[str] = _ALL
    form: ConllFormat = field(default_factory=ConllFormat)
    share: float = 1.0
    ordered: bool = False
    strip_titles: bool = False


def _crossner(domain: str, part: str) -> str:
    return f"crossner/{domain}/{part}.txt"


_DOMAINS = ("politics", "science", "music", "literature", "ai")

TRAINING: tuple[Corpus, ...] = (
    Corpus(name="wnut17", files=("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"), labels=_WNUT),
    Corpus(
        name="btc",
        files=tuple(f"btc/{part}.conll" for part in "abegh"),
        labels={**_PLAIN, HANDLE: UNSURE},
        annotates=_NO_MISC,
        form=_TWEETS,
    ),
    Corpus(name="wikigold", files=("wikigold/wikigold.conll.txt",), labels=_PLAIN, ordered=True),
    Corpus(
        name="uner",
        files=("uner-en-ewt/en_ewt-ud-dev.iob2.gz",),
        labels=_PLAIN,
        annotates=_NO_MISC,
        form=_UNER,
        share=2.0,
        ordered=True,
    ),
    *(
        Corpus(name=f"crossner-{d}", files=(_crossner(d, "train"), _crossner(d, "dev")), labels=_CROSSNER)
        for d in _DOMAINS
    ),
    Corpus(
        name="litbank",
        files=("litbank/litbank_prop.conll.gz",),
        labels=_LITBANK,
        annotates=frozenset({"PER", "LOC"}),
        share=0.15,
        ordered=True,
        strip_titles=True,
    ),
    Corpus(
        name="presidio",
        files=("presidio-synth-pii/synth_dataset_v2.json.gz",),
        labels=_PRESIDIO,
        annotates=_NO_MISC,
        share=0.5,
    ),
)

EVALUATION: tuple[Corpus, ...] = (
    Corpus(name="conll2003", files=("restricted-eval/conll2003/eng.testb.gz",), labels=_PLAIN),
    Corpus(name="wnut17", files=("wnut17/emerging.test.annotated",), labels=_WNUT),
    Corpus(name="uner", files=("uner-en-ewt/en_ewt-ud-test.iob2.gz",), labels=_PLAIN, form=_UNER),
    Corpus(name="crossner-politics", files=(_crossner("politics", "test"),), labels=_CROSSNER),
    Corpus(name="btc-f", files=("btc/f.conll",), labels={**_PLAIN, HANDLE: UNSURE}, form=_TWEETS),
)


def load(corpus: Corpus, root: str | Path) -> list[Document]:
    """Documents of a set, with our labels; TrainingDataError where file or label is not as the table says."""
    documents: list[Document] = []
    for name in corpus.files:
        file = Path(root) / name
        raw = _read_presidio(file) if ".json" in file.suffixes else read_conll(file, corpus.form)
        documents.extend(tuple(_mapped(sentence, corpus, file) for sentence in document) for document in raw)
    return documents


def _mapped(sentence: Labeled, corpus: Corpus, file: Path) -> Labeled:
    spans = []
    for span in sentence.spans:
        if span.label not in corpus.labels:
            raise TrainingDataError(
                f"{file}: label {span.label!r} is not in the map{nearest(span.label, corpus.labels)}"
            )
        label = corpus.labels[span.label]
        if label is None:
            continue
        start = _strip_titles(sentence.text, span) if corpus.strip_titles else span.start
        if start < span.end:
            spans.append(Span(start, span.end, label))
    return Labeled(sentence.text, tuple(spans))


def _strip_titles(text: str, span: Span) -> int:
    """Where the name itself begins after titles and articles; the span's end where nothing is left."""
    start = span.start
    while start < span.end:
        word, blank, _ = text[start : span.end].partition(" ")
        if word.lower() not in _TITLES:
            break
        start += len(word) + len(blank)
    return start


def _read_presidio(file: Path) -> list[Document]:
    """Texts with character spans, each a document; labels off the map (dates, numbers) are plain text."""
    if not file.is_file():
        raise TrainingDataError(f"labelled data not found: {file}")
    rows = json.loads(gzip.decompress(file.read_bytes()))
    documents: list[Document] = []
    for row in rows:
        text = str(row["full_text"])
        spans = sorted(
            (int(s["start_position"]), int(s["end_position"]), str(s["entity_type"])) for s in row["spans"]
        )
        kept = tuple(Span(a, b, k) for a, b, k in spans if k in _PRESIDIO)
        documents.append((Labeled(text, kept),))
    return documents
