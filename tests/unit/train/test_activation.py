"""ReLU in place of GELU: the refitted encoder stays near the pretrained one."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from spark_ner.train.activation import refit_as_relu  # noqa: E402


def tagger():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=9,
        initializer_range=0.5,
    )
    return transformers.BertForTokenClassification(config).eval()


def batches(seed: int):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(8, 24, dtype=torch.long)
    mask[:, 20:] = 0
    shape = (20, *mask.shape)
    ids = torch.randint(0, 60, shape, generator=generator)
    return [{"input_ids": i, "attention_mask": mask, "token_type_ids": torch.zeros_like(mask)} for i in ids]


def distance(one, other, inputs) -> float:
    with torch.inference_mode():
        return float((one(**inputs).logits - other(**inputs).logits)[inputs["attention_mask"] > 0].std())


def test_refitted_layers_stay_nearer_than_swapped_ones_on_unseen_text():
    pretrained, refitted, swapped = (tagger() for _ in range(3))
    lost = refit_as_relu(refitted, batches(1))
    for layer in swapped.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU()
    (unseen, *_) = batches(2)
    assert distance(pretrained, refitted, unseen) < 0.4 * distance(pretrained, swapped, unseen)
    assert len(lost) == 2
    assert all(0 < share < 0.1 for share in lost)
    assert refitted.config.hidden_act == "relu"


def test_the_saved_model_computes_the_same(tmp_path):
    model = tagger()
    refit_as_relu(model, batches(1))
    before = copy.deepcopy(model)
    model.save_pretrained(tmp_path)
    again = transformers.BertForTokenClassification.from_pretrained(tmp_path).eval()
    assert distance(before, again, batches(2)[0]) < 1e-5
