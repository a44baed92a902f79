"""Named entities out of Spark columns: exact spans, any document length, any batching."""

__version__ = "0.1.0"
