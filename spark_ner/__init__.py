"""Named entities out of Spark columns: exact spans, any document length, any batching."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_ner.engine import load_engine as load_engine
    from spark_ner.spark.udf import annotate as annotate
    from spark_ner.spark.udf import ner_once as ner_once
    from spark_ner.spark.udf import ner_udf as ner_udf
    from spark_ner.spark.udf import register as register

__version__ = "0.1.0"

# Resolved on first use: `import spark_ner` loads neither pyspark nor torch nor transformers.
_HOME = {
    "annotate": "spark_ner.spark.udf",
    "load_engine": "spark_ner.engine",
    "ner_once": "spark_ner.spark.udf",
    "ner_udf": "spark_ner.spark.udf",
    "register": "spark_ner.spark.udf",
}
__all__ = ["__version__", "annotate", "load_engine", "ner_once", "ner_udf", "register"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'spark_ner' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
