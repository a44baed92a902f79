"""Strict span F1 of a model on the five English test sets: `make evaluate`.

    python benchmarks/accuracy.py [--model default] [--variant auto] [--sets wnut17,uner] [--data DIR]

Prints a table (precision, recall, F1; PER, ORG, LOC) by sentence and, where a set has documents, by
document, and writes JSON. Raw text is the corpus's tokens joined by blanks; user handles of BTC f are not
counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import spark_ner
from spark_ner.config import nearest
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.errors import ConfigError, UserError
from spark_ner.train.evaluate import GoldSet, evaluate, gold_sets, table


def chosen(sets: list[GoldSet], names: str | None) -> list[GoldSet]:
    """The sets named; ConfigError where one is not there."""
    if names is None:
        return sets
    by_name = {gold.name: gold for gold in sets}
    for name in names.split(","):
        if name not in by_name:
            raise ConfigError(f"--sets: no test set {name!r}{nearest(name, by_name)}")
    return [by_name[name] for name in names.split(",")]


def main() -> int:
    """Parse the command line, score, print; 0 done, 2 the user's error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="default", help="shipped model's name, bundle or Hugging Face directory"
    )
    parser.add_argument("--variant", default="auto", help="variant of the bundle")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    parser.add_argument("--sets", help="names of the sets to score, divided by commas (default: all five)")
    parser.add_argument("--threads", type=int, help="threads of the runtime (default: all)")
    parser.add_argument(
        "--json", type=Path, default=Path(".reports/accuracy.json"), help="where the JSON goes"
    )
    options = parser.parse_args()
    try:
        engine = load_engine(options.model, spec=EngineSpec(variant=options.variant, threads=options.threads))
        reports = evaluate(engine.annotate, chosen(gold_sets(options.data), options.sets))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(reports))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "model": str(options.model),
        "runtime": engine.runtime.name,
        "version": spark_ner.__version__,
        "sets": {name: {unit: r.to_dict() for unit, r in units.items()} for name, units in reports.items()},
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
