"""The loop: read ahead, batch by length under a token budget, score, place, decode."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_ner.bundle.load import Bundle, open_bundle
from spark_ner.bundle.manifest import OVERLAP_TOKENS, WINDOW_TOKENS
from spark_ner.engine import fake
from spark_ner.engine.batching import bucket_lengths, token_budget_batches
from spark_ner.engine.decode import Words, decode, word_tags
from spark_ner.engine.reading import Chunk, Documents, lookahead
from spark_ner.engine.runtimes import Batch, Runtime
from spark_ner.engine.spec import EngineSpec
from spark_ner.engine.text import clean, decoded
from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import ConfigError, RowError
from spark_ner.labels import LabelScheme
from spark_ner.types import Entities

_FAKE_MAX_TOKENS = 512


@dataclass
class EngineStats:
    """What an engine has done since it was made; plain numbers that only grow."""

    documents: int = 0
    nulls: int = 0
    errors: int = 0
    windows: int = 0
    tokens: int = 0  # positions computed that hold a token, special ones included
    padded_tokens: int = 0  # positions computed, padding included
    words: int = 0
    entities: int = 0
    tokenize_s: float = 0.0
    forward_s: float = 0.0
    decode_s: float = 0.0

    def snapshot(self) -> dict[str, float]:
        """The counters now; subtract two snapshots for what happened in between."""
        return asdict(self)

    @property
    def padding_share(self) -> float:
        """Share of the computed positions that held no token."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0


class ModelInput(TypedDict):
    """What a model takes: its length with special ones, its windows without, whether it reads letter case."""

    max_tokens: int
    window_tokens: NotRequired[int]
    overlap_tokens: NotRequired[int]
    letter_case: NotRequired[bool]


class Engine:
    """Texts to entities in this process; it keeps no state between texts, only counters.

    Several threads may call it; the counters are exact with one.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        runtime: Runtime,
        scheme: LabelScheme,
        spec: EngineSpec,
        **takes: Unpack[ModelInput],
    ) -> None:
        """Put the parts together; `load_engine` does it from a model's name."""
        self.spec, self.scheme, self.runtime = spec, scheme, runtime
        self.stats = EngineStats()
        self._tokenizer, self._max_tokens = tokenizer, takes["max_tokens"]
        self._letter_case = takes.get("letter_case", False)
        self.window_tokens, self.overlap_tokens = spec.window(
            limit=self._max_tokens - tokenizer.n_special,
            default=takes.get("window_tokens", WINDOW_TOKENS),
            overlap=takes.get("overlap_tokens", OVERLAP_TOKENS),
        )
        for label in spec.thresholds:
            if label not in scheme.types:
                raise ConfigError(f"threshold for {label!r}, but the model knows: {', '.join(scheme.types)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """Entity types the model knows."""
        return self.scheme.types

    def annotate(self, texts: Sequence[str | None]) -> Entities:
        """Entities of each text; null text gives None, empty or blank text an empty list."""
        (entities,) = self._annotate([[t if t is None else clean(t) for t in texts]])
        return entities

    def annotate_stream(self, arrays: Iterable[pa.StringArray | pa.LargeStringArray]) -> Iterator[Entities]:
        """One result per input array of strings, in order; reads ahead over arrays by `lookahead_tokens`.

        What is not UTF-8 counts as U+FFFD, one a unit. A document that fails is recorded and fails no other,
        unless `on_error` is `fail`.
        """
        return self._annotate(strings(array) for array in arrays)

    def _annotate(self, arrays: Iterable[Sequence[str | None]]) -> Iterator[Entities]:
        chunks = lookahead(
            arrays,
            self._tokenizer,
            size=self.window_tokens,
            overlap=self.overlap_tokens,
            tokens=self.spec.lookahead_tokens,
            reject=self._reject,
        )
        while (chunk := self._next(chunks)) is not None:
            # The longest bucket is the model's own length, which need be no multiple of a step.
            buckets = bucket_lengths(chunk.windows.n_tokens + self._tokenizer.n_special)
            buckets = np.minimum(buckets, self._max_tokens)
            for batch in token_budget_batches(buckets, self.spec.batch_tokens):
                self._score(chunk, batch, int(buckets[batch[0]]))
            chunk.hand_out()
            for documents in chunk.finished:
                yield self._decode(documents)

    def _next(self, chunks: Iterator[Chunk]) -> Chunk | None:
        began = time.perf_counter()
        chunk = next(chunks, None)
        self.stats.tokenize_s += time.perf_counter() - began
        return chunk

    def _reject(self, text: str) -> str | None:
        cap = self.spec.max_document_chars
        if cap is None or len(text) <= cap:
            return None
        return f"the document has {len(text)} characters; max_document_chars is {cap}"

    def _score(self, chunk: Chunk, windows: NDArray[np.int64], bucket: int) -> None:
        """Score the windows of one batch and place their words' tags; a failure is narrowed to its window."""
        began = time.perf_counter()
        try:
            self._place(chunk, windows, self.runtime.scores(self._batch(chunk, windows, bucket)))
        except Exception as error:  # noqa: BLE001 - the row-level boundary: it belongs to one document
            if len(windows) > 1:
                for window in windows:
                    self._score(chunk, window[None], bucket)
                return  # each was counted by itself
            # Another library's message may hold the text: its type is all that is passed on.
            what = str(error) if isinstance(error, RowError) else type(error).__name__
            chunk.fail(int(windows[0]), f"the model failed on the document: {what}")
        self.stats.forward_s += time.perf_counter() - began
        self.stats.windows += len(windows)
        self.stats.padded_tokens += len(windows) * bucket
        self.stats.tokens += (
            int(chunk.windows.n_tokens[windows].sum()) + len(windows) * self._tokenizer.n_special
        )

    def _batch(self, chunk: Chunk, windows: NDArray[np.int64], bucket: int) -> Batch:
        """Gather the windows' tokens, special ones around them, padding behind: (n_windows, bucket)."""
        prefix, suffix = self._tokenizer.prefix_ids, self._tokenizer.suffix_ids
        starts, counts = chunk.windows.start[windows], chunk.windows.n_tokens[windows]
        ids = np.full((len(windows), bucket), self._tokenizer.pad_id, np.int64)
        mask = np.zeros_like(ids)
        kinds = np.zeros_like(ids)
        for row, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
            body = slice(len(prefix), len(prefix) + count)
            ids[row, : len(prefix)] = prefix
            ids[row, body] = chunk.tokens.ids[start : start + count]
            ids[row, body.stop : body.stop + len(suffix)] = suffix
            mask[row, : body.stop + len(suffix)] = 1
            if self._letter_case:
                kinds[row, body] = chunk.tokens.case[start : start + count]
        return Batch(ids, mask, kinds)

    def _place(self, chunk: Chunk, windows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Take each owned word's tag from the scores (n_windows, bucket, n_tags) of its window."""
        low, high = chunk.words_of(windows)
        counts = high - low
        word = np.concatenate([np.arange(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)])
        row = np.repeat(np.arange(len(windows)), counts)
        head = chunk.word_rows[word]
        if self.spec.word_strategy == "first":
            token, of_word = head, np.arange(len(word))
        else:
            token, of_word = _tokens_of_words(chunk, head, chunk.windows.end[windows][row])
        window_row = row[of_word]
        column = token - chunk.windows.start[windows][window_row] + len(self._tokenizer.prefix_ids)
        scores = logits[window_row, column]
        if not np.isfinite(scores).all():
            raise RowError("the scores are not finite")
        chunk.tag[word], chunk.score[word] = word_tags(scores, of_word, strategy=self.spec.word_strategy)

    def _decode(self, documents: Documents) -> Entities:
        if documents.errors and self.spec.on_error == "fail":
            raise RowError(documents.errors[min(documents.errors)])
        began = time.perf_counter()
        words = Words.concatenate(documents.words)
        documents.words.clear()
        entities = decode(
            documents.texts, words, self.scheme, thresholds=self.spec.thresholds, errors=documents.errors
        )
        stats = self.stats
        stats.documents += len(entities)
        stats.nulls += sum(text is None for text in documents.texts)
        stats.errors += len(documents.errors)
        stats.words += len(words.tag)
        stats.entities += len(entities.start)
        stats.decode_s += time.perf_counter() - began
        return entities


def load_engine(
    model: str | Path = "default", *, spec: EngineSpec | None = None, rules: Mapping[str, str] | None = None
) -> Engine:
    """An engine for a shipped model, a bundle, a Hugging Face directory, or `fake`.

    Args:
        model: name or directory; every digest is verified.
        spec: settings; EngineSpec() where None.
        rules: word to tag, for `fake` alone.

    Raises:
        PathError, BundleError, LabelError, ConfigError, DependencyError: see each class.
    """
    spec = spec or EngineSpec()
    if str(model) == "fake":
        chosen = fake.GAZETTEER if rules is None else rules
        tokenizer = fake.fake_tokenizer()
        return Engine(
            tokenizer=tokenizer,
            runtime=fake.FakeRuntime(chosen, tokenizer),
            scheme=LabelScheme.from_tags(fake.fake_labels(chosen)),
            spec=spec,
            max_tokens=_FAKE_MAX_TOKENS,
        )
    return engine_of(open_bundle(model), spec=spec)


def engine_of(bundle: Bundle, *, spec: EngineSpec) -> Engine:
    """An engine for an opened bundle."""
    manifest = bundle.manifest
    return Engine(
        tokenizer=Tokenizer.from_file(bundle.file(manifest.tokenizer)),
        runtime=_runtime_of(bundle, spec),
        scheme=bundle.scheme,
        spec=spec,
        max_tokens=manifest.max_tokens,
        window_tokens=manifest.window_tokens,
        overlap_tokens=manifest.overlap_tokens,
        letter_case=manifest.token_feature == "letter_case",
    )


def _runtime_of(bundle: Bundle, spec: EngineSpec) -> Runtime:
    if spec.runtime == "fake":
        raise ConfigError("runtime 'fake' goes with model 'fake'")
    _, variant = bundle.choose(runtime=spec.runtime, variant=spec.variant)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = spec.threads or usable
    if variant.runtime == "onnx":
        from spark_ner.engine.runtimes.onnx import OnnxRuntime

        return OnnxRuntime(bundle.file(variant.files[0]), threads=threads, precision=variant.precision)
    from spark_ner.engine.runtimes.torch import TorchRuntime

    return TorchRuntime(
        bundle.path,
        threads=threads,
        device=spec.device,
        letter_case=bundle.manifest.token_feature == "letter_case",
    )


def _tokens_of_words(
    chunk: Chunk, head: NDArray[np.int64], window_end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Solid tokens of words, as far as the window reaches: token rows, and which word each is of."""
    starts = np.flatnonzero(chunk.tokens.word)
    index = np.searchsorted(starts, head) + 1
    stop = np.minimum(np.append(starts, len(chunk.tokens))[index], window_end)
    counts = np.maximum(stop - head, 1)
    of_word = np.repeat(np.arange(len(head)), counts)
    token = np.arange(len(of_word)) - np.repeat(np.cumsum(counts) - counts, counts) + head[of_word]
    solid = chunk.tokens.solid[token]
    return token[solid], of_word[solid]


def strings(array: pa.StringArray | pa.LargeStringArray) -> list[str | None]:
    """Python strings of an Arrow string array; what is not UTF-8 becomes U+FFFD, see `decoded`."""
    try:
        texts: list[str | None] = array.to_pylist()
    except UnicodeDecodeError:
        binary = pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()
        return [b if b is None else decoded(b) for b in array.view(binary).to_pylist()]
    return texts
