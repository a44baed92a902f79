"""Strict span F1 of a model on the five English test sets: `make evaluate`.

    python benchmarks/accuracy.py [--model default] [--variant auto] [--data ../shared/data] [--json FILE]

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
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.errors import UserError
from spark_ner.train.evaluate import evaluate, gold_sets, table


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
    parser.add_argument("--threads", type=int, help="threads of the runtime (default: all)")
    parser.add_argument(
        "--json", type=Path, default=Path(".reports/accuracy.json"), help="where the JSON goes"
    )
    options = parser.parse_args()
    try:
        engine = load_engine(options.model, spec=EngineSpec(variant=options.variant, threads=options.threads))
        reports = evaluate(engine.annotate, gold_sets(options.data))
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
