"""A small WordPiece tokenizer, made here, so that no weights are needed."""

import pytest
from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers, processors

from spark_ner.engine.tokenizer import Tokenizer

WORDS = [
    "oslo",
    "rome",
    "kyoto",
    "paris",
    "ada",
    "novak",
    "acme",
    "corp",
    "calls",
    "met",
    "in",
    "and",
    "the",
    "of",
    "is",
    "a",
    "works",
    "for",
    "lives",
    "new",
    "york",
]


def rust_tokenizer() -> Rust:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,-'\"@#?!"
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[unused0]",
        *WORDS,
        *letters,
        *(f"##{c}" for c in letters),
    ]
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocabulary))}
    rust = Rust(models.WordPiece(ids, unk_token="[UNK]"))
    rust.normalizer = normalizers.BertNormalizer(lowercase=True)
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return rust


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(rust_tokenizer())
