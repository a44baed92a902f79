"""Sentences to texts and batches: mixed lengths, the same from the same seed, nothing lost."""

import numpy as np
import pytest

from spark_ner.errors import ConfigError
from spark_ner.train.align import Targets
from spark_ner.train.corpora import TYPES, Corpus
from spark_ner.train.data import Labeled, Span
from spark_ner.train.texts import (
    MixConfig,
    compose,
    examples,
    group,
    pad,
    recase,
    split,
    wrap,
)

NEVER = dict.fromkeys(("line_share", "wrap_share", "lower_share", "upper_share", "title_share"), 0.0)
PLAIN = MixConfig(**NEVER | {"single_share": 0.6})
SENTENCES = [Labeled(f"Oslo calls {n}", (Span(0, 4, "LOC"),)) for n in range(60)]
TARGETS = Targets(TYPES)
TAGS = TARGETS.scheme.tags
SIZES = {s.text: 3 for s in SENTENCES}


def corpus(*, ordered: bool = True, share: float = 1.0) -> Corpus:
    return Corpus(name="a", files=(), labels={}, ordered=ordered, share=share)


def composed(seed: int, *, ordered: bool = True, mix: MixConfig = PLAIN) -> list[Labeled]:
    return compose(
        corpus(ordered=ordered), [tuple(SENTENCES)], SIZES, mix=mix, rng=np.random.default_rng(seed)
    )


def test_ordered_sentences_are_joined_in_order_and_none_is_lost():
    texts = composed(1)
    assert " ".join(t.text for t in texts) == " ".join(s.text for s in SENTENCES)
    assert sum(len(t.spans) for t in texts) == 60
    assert all(t.text[s.start : s.end] == "Oslo" for t in texts for s in t.spans)
    lengths = {t.text.count("Oslo") for t in texts}
    assert 1 in lengths
    assert max(lengths) > 3


def test_another_epoch_cuts_elsewhere_and_the_same_seed_the_same():
    assert composed(1) == composed(1)
    assert composed(1) != composed(2)


def test_sentences_without_order_are_shuffled():
    words = " ".join(t.text for t in composed(1, ordered=False)).split()
    assert words != " ".join(s.text for s in SENTENCES).split()
    assert sorted(words) == sorted(" ".join(s.text for s in SENTENCES).split())


def test_sentences_may_stand_one_a_line():
    texts = composed(1, mix=MixConfig(**NEVER | {"single_share": 0.6, "line_share": 1.0}))
    assert "\n".join(t.text for t in texts) == "\n".join(s.text for s in SENTENCES)
    assert all(t.text[s.start : s.end] == "Oslo" for t in texts for s in t.spans)


def test_lines_are_broken_at_blanks_and_nothing_moves():
    text = Labeled("Ann Lee called Bob\nand went home to Little Italy", (Span(36, 48, "LOC"),))
    wrapped = wrap(text, 14)
    assert wrapped.text == "Ann Lee called\nBob\nand went home\nto Little\nItaly"
    assert wrapped.text[36:48] == "Little\nItaly"
    assert wrapped.spans == text.spans
    assert wrap(Labeled("a" * 20), 10) == Labeled("a" * 20)
    wrapping = composed(2, mix=MixConfig(**NEVER | {"single_share": 0.0, "wrap_share": 1.0}))
    assert max(len(line) for t in wrapping for line in t.text.split("\n")) <= 100


def test_texts_stay_within_the_longest():
    mix = MixConfig(single_share=0, longest_tokens=12, shortest_tokens=10)
    assert max(t.text.count("alls") for t in composed(3, mix=mix)) == 3  # 3 + 4 + 4: line breaks count


@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        ("lower_share", "in new york 1a straße"),
        ("upper_share", "IN NEW YORK 1A STRAßE"),
        ("title_share", "In New York 1a Straße"),
    ],
)
def test_recasing_keeps_offsets(share, wanted):
    mix = MixConfig(**NEVER | {share: 1.0})
    spans = (Span(3, 11, "LOC"),)
    assert recase(Labeled("in New York 1a straße", spans), mix, np.random.default_rng(0)) == Labeled(
        wanted, spans
    )


def test_examples_drop_letter_case_where_told_and_are_cut_at_the_limit(tokenizer):
    texts = [Labeled("Oslo calls", (Span(0, 4, "LOC"),))] * 2
    shown, hidden = examples(corpus(), texts, tokenizer, targets=TARGETS, caseless=np.array([False, True]))
    assert shown.ids.tolist() == hidden.ids.tolist()
    assert shown.case.tolist() == [0, 3, 2, 0]
    assert not hidden.case.any()
    assert shown.target.tolist() == [0, 1 + TAGS.index("B-LOC"), 1 + TAGS.index("O"), 0]
    (short,) = examples(corpus(), texts[:1], tokenizer, targets=TARGETS, caseless=np.array([False]), limit=1)
    assert len(short.ids) == 3


def test_groups_hold_every_row_once_within_the_budget():
    length = np.arange(3, 42)
    found = group(length, batch_tokens=64, rng=np.random.default_rng(0))
    assert sorted(np.concatenate(found).tolist()) == list(range(39))
    assert max(len(rows) * length[rows].max() for rows in found) <= 64
    assert group(length[:0], batch_tokens=64, rng=np.random.default_rng(0)) == []


def test_a_row_over_the_budget_is_alone():
    found = group(np.array([90, 3, 4]), batch_tokens=64, rng=np.random.default_rng(0))
    assert sorted(sorted(rows.tolist()) for rows in found) == [[0], [1, 2]]


def test_padding_leaves_each_row_as_it_was(tokenizer):
    long, short = examples(
        corpus(),
        [Labeled("Oslo Rome Ada"), Labeled("Oslo")],
        tokenizer,
        targets=TARGETS,
        caseless=np.zeros(2, bool),
    )
    batch = pad([long, short], 0)
    assert batch.input_ids[1].tolist() == [*short.ids.tolist(), 0, 0]
    assert batch.attention_mask[1].tolist() == [1, 1, 1, 0, 0]


def test_held_out_blocks_are_the_same_in_every_run_and_no_sentence_is_in_both():
    train, dev = split(corpus(), [tuple(SENTENCES)] * 40, 0.3)
    assert (train, dev) == split(corpus(), [tuple(SENTENCES)] * 40, 0.3)
    n_train, n_dev = (sum(len(d) for d in part) for part in (train, dev))
    assert n_train + n_dev == 2400
    assert 0.2 < n_dev / 2400 < 0.4


@pytest.mark.parametrize("wrong", [{"held_out": 1.5}, {"longest_tokens": 600}, {"shortest_tokens": 0}])
def test_impossible_mixes_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        MixConfig(**wrong)
