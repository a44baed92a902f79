"""Model directories: manifest, opening with verification, publishing, and the shipped models."""

from spark_ner.bundle.load import Bundle, locate, open_bundle
from spark_ner.bundle.manifest import FileEntry, Manifest, Variant
from spark_ner.bundle.publish import publish

__all__ = ["Bundle", "FileEntry", "Manifest", "Variant", "locate", "open_bundle", "publish"]
