"""A model without weights: tags the words it was told, so that a cluster, a test or a demo can run dry.

It is deterministic, reads token ids like any runtime, and tags a phrase wherever it sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import tokenizers
from numpy.typing import NDArray

from spark_ner.engine.runtimes import Batch
from spark_ner.engine.tokenizer import Tokenizer

GAZETTEER: Mapping[str, str] = MappingProxyType(
    {
        "Oslo": "B-LOC",
        "Rome": "B-LOC",
        "Kyoto": "B-LOC",
        "Paris": "B-LOC",
        "Lima": "B-LOC",
        "Turin": "B-LOC",
        "Bern": "B-LOC",
        "Lyon": "B-LOC",
        "Ankara": "B-LOC",
        "Lagos": "B-LOC",
        "Acme": "B-ORG",
        "Globex": "B-ORG",
        "Ada": "B-PER",
        "Novak": "I-PER",
        "Lovelace": "I-PER",
        "Mina": "B-PER",
        "Lars": "B-PER",
    }
)
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def fake_tokenizer() -> Tokenizer:
    """A cased WordPiece tokenizer over single characters: long words become many pieces, as in life."""
    characters = [chr(c) for c in range(33, 127)]
    pieces = [*_SPECIAL, *characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    rust = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    rust.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    rust.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    rust.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return Tokenizer(rust)


def fake_labels(rules: Mapping[str, str]) -> tuple[str, ...]:
    """O and the rules' tags, in one fixed order."""
    return ("O", *sorted(set(rules.values()) - {"O"}))


class FakeRuntime:
    """Gives each phrase of its rules the phrase's tag, on all of its tokens."""

    def __init__(self, rules: Mapping[str, str], tokenizer: Tokenizer) -> None:
        """Rules map a word, as the tokenizer sees words, to its tag."""
        labels = fake_labels(rules)
        self._n_tags = len(labels)
        self._phrases: list[tuple[NDArray[np.int32], int]] = []
        for phrase, tag in rules.items():
            self._phrases.append((tokenizer.encode([phrase]).ids, labels.index(tag)))
        # A word's first token never continues another word: its id, in WordPiece, is no "##" piece.
        self._continues = _continuing_ids(tokenizer)

    @property
    def name(self) -> str:
        """`fake`."""
        return "fake"

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        """Logit 8 for the tag of each phrase found, 8 for O elsewhere, 0 for all others."""
        ids = batch.ids
        tags = np.zeros(ids.shape, np.int64)
        for phrase, tag in self._phrases:
            n = len(phrase)
            if not n or n > ids.shape[1]:
                continue
            found = np.ones((ids.shape[0], ids.shape[1] - n + 1), bool)
            for offset, piece in enumerate(phrase.tolist()):
                found &= ids[:, offset : ids.shape[1] - n + 1 + offset] == piece
            after = np.zeros_like(found)
            after[:, :-1] = self._continues[ids[:, n:]]
            for row, column in np.argwhere(found & ~after):
                tags[row, column : column + n] = tag
        return (np.eye(self._n_tags, dtype=np.float32) * 8)[tags]


def _continuing_ids(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    vocabulary = tokenizer.vocabulary()
    flags = np.zeros(max(vocabulary.values()) + 1, bool)
    for token, index in vocabulary.items():
        flags[index] = token.startswith("##")
    return flags
