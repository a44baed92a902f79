"""The open English sets behind the embedded model: files, labels, what each annotates, how much of it.

Never here: a test part, anything of restricted-eval, gmb-silver (no stated licence), sec-filings (its
convention that "Borrower" and "Lender" are persons harms a general model).
"""

from __future__ import annotations

from spark_ner.train.corpus import UNSURE, Corpus, load
from spark_ner.train.data import HANDLE, ConllFormat
from spark_ner.train.rows import Fields

__all__ = ["EVALUATION", "TRAINING", "TYPES", "UNSURE", "Corpus", "load"]

TYPES = ("PER", "ORG", "LOC", "MISC")

_NO_MISC = ("PER", "ORG", "LOC")
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
        annotates=("PER", "LOC"),
        share=0.15,
        ordered=True,
        strip_titles=True,
    ),
    Corpus(
        name="presidio",
        files=("presidio-synth-pii/synth_dataset_v2.json.gz",),
        format="jsonl",
        labels=_PRESIDIO,
        unlisted="drop",  # dates, numbers
        annotates=_NO_MISC,
        fields=Fields(text="full_text", start="start_position", end="end_position", label="entity_type"),
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
