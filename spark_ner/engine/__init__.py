"""The engine: texts to entities without Spark; never imports pyspark, nor torch on the default path."""

from spark_ner.engine.engine import Engine, EngineStats, engine_of, load_engine
from spark_ner.engine.spec import EngineSpec

__all__ = ["Engine", "EngineSpec", "EngineStats", "engine_of", "load_engine"]
