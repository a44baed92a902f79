"""Spark on top of the engine: shipping a model, the workers' cache, the table and SQL faces, the job."""
