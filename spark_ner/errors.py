"""One error tree: every error says what was got, what was wanted, and where.

`UserError` and its children are faults of the call (config, input, schema, environment): the commands
turn them into one sentence and exit code 2. Everything else is exit code 1.
"""

from __future__ import annotations


class SparkNerError(Exception):
    """Base of every error raised on purpose by this package."""


class UserError(SparkNerError):
    """The caller can mend it: a setting, a path, a column, a missing part of the installation."""


class ConfigError(UserError, ValueError):
    """When a setting is unknown, of the wrong type, or impossible."""


class ColumnError(UserError, LookupError):
    """When a named column is missing or has a type that cannot be read."""


class PathError(UserError, FileNotFoundError):
    """When an input, a model or a config file is not there."""


class SchemaError(UserError, TypeError):
    """When a table exists with columns other than those about to be written."""


class BundleError(UserError, ValueError):
    """When a model directory is incomplete, tampered with, or of a kind that is refused."""


class LabelError(BundleError):
    """When a model's tags name no labels, or follow no known tag scheme."""


class DependencyError(UserError, ImportError):
    """When an optional dependency is missing; the message names the extra that brings it."""


class SetupError(UserError, RuntimeError):
    """When Java, the Delta jars or the workers' Python are absent or do not fit."""


class CheckpointError(UserError, RuntimeError):
    """When a checkpoint is foreign to the table, or the table's own checkpoint is lost."""


class TrainingDataError(UserError, ValueError):
    """When labelled data cannot be read; the message names file and line or row."""


class CommitError(SparkNerError, RuntimeError):
    """When a write reported success but the table does not show the commit."""


class RowError(SparkNerError, ValueError):
    """When one document cannot be processed; the message never holds its text."""
