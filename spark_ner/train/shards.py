"""Training texts as Arrow files: tokenized once, memory-mapped by every process, never held whole.

A folder of shards has files `part-<variant>-<number>.arrow` and `shards.json`, which is written last: without
it the folder does not count. A variant is one way of joining and re-casing the sentences; epoch `e` reads
variant `e` modulo their number. An epoch's order depends on seed and epoch alone, so any process can tell
which batches are whose, and where a stopped run was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_ner.errors import TrainingDataError
from spark_ner.labels import iob2_tags
from spark_ner.train.texts import Batch, Example, group, pad

MANIFEST = "shards.json"
_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "ids": pa.list_(pa.int32()),
        "case": pa.list_(pa.uint8()),
        "target": pa.list_(pa.uint16()),
    }
)
_CHUNK_ROWS = 512  # of a record batch: what is read at once
_FILE_ROWS = 65_536
_POOL_CHUNKS = 16  # record batches drawn together, sorted by length and cut into batches

Rows = NDArray[np.int64]  # (n_texts, 2): chunk and row in it


@dataclass(frozen=True, kw_only=True)
class About:
    """What a folder of shards holds; `fingerprint` is of everything that it was made from."""

    fingerprint: str
    types: tuple[str, ...]
    allowed: tuple[tuple[int, ...], ...]  # (n_targets, n_tags) zeros and ones, see `align.Targets`
    pad_id: int
    n_rows: tuple[int, ...] = ()  # texts of each variant
    n_tokens: tuple[int, ...] = ()
    n_targets: tuple[int, ...] = ()


class ShardWriter:
    """Writes one file of a variant in record batches; the file appears whole or not at all."""

    def __init__(self, directory: Path, *, variant: int, number: int) -> None:
        self._target = directory / f"part-{variant:03d}-{number:05d}.arrow"
        self._aside = self._target.with_suffix(f".{os.getpid()}.part")
        self._rows: list[Example] = []
        self._writer = pa.ipc.new_file(str(self._aside), _SCHEMA)
        self.n_rows = self.n_tokens = self.n_targets = 0

    def add(self, example: Example) -> None:
        """Take one text."""
        self._rows.append(example)
        self.n_rows += 1
        self.n_tokens += len(example.ids)
        self.n_targets += int(np.count_nonzero(example.target))
        if len(self._rows) == _CHUNK_ROWS:
            self._flush()

    def close(self) -> None:
        """End the file and put it in its place."""
        self._flush()
        self._writer.close()
        with self._aside.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(self._aside, self._target)

    def _flush(self) -> None:
        if self._rows:
            columns = ([getattr(r, name) for r in self._rows] for name in _SCHEMA.names)
            arrays = [pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)]
            self._writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
            self._rows.clear()


def write(directory: str | Path, variants: Iterable[Iterable[Example]], *, about: About) -> Shards:
    """Write all variants and then the manifest.

    Raises:
        TrainingDataError: a variant has no text with a target.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for old in (*folder.glob("part-*.arrow"), *folder.glob("part-*.part")):
        old.unlink()
    counts = [_write_variant(folder, index, examples) for index, examples in enumerate(variants)]
    if not counts or not all(n for n, *_ in counts):
        raise TrainingDataError("no text of the training data has a word that can be learnt from")
    rows, tokens, targets = (tuple(column) for column in zip(*counts, strict=True))
    return publish(
        folder, About(**{**asdict(about), "n_rows": rows, "n_tokens": tokens, "n_targets": targets})
    )


def _write_variant(folder: Path, variant: int, examples: Iterable[Example]) -> tuple[int, int, int]:
    done: list[ShardWriter] = []
    writer: ShardWriter | None = None
    for example in examples:
        if writer is None or writer.n_rows == _FILE_ROWS:
            if writer is not None:
                writer.close()
            writer = ShardWriter(folder, variant=variant, number=len(done))
            done.append(writer)
        writer.add(example)
    if writer is not None:
        writer.close()
    return sum(w.n_rows for w in done), sum(w.n_tokens for w in done), sum(w.n_targets for w in done)


def publish(folder: Path, about: About) -> Shards:
    """Write the manifest over the files that are there: from now on the folder counts."""
    files = {file.name: file.stat().st_size for file in sorted(folder.glob("part-*.arrow"))}
    aside = folder / f"{MANIFEST}.part"
    with aside.open("w", encoding="utf-8") as out:
        json.dump({**asdict(about), "files": files}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, folder / MANIFEST)
    return Shards(folder)


class Shards:
    """A finished folder of shards; cheap to open, and to send to another process as its path."""

    def __init__(self, directory: str | Path) -> None:
        """Open it; TrainingDataError where it is unfinished, or a file of it is gone or cut."""
        self.directory = Path(directory)
        manifest = self.directory / MANIFEST
        if not manifest.is_file():
            raise TrainingDataError(f"{self.directory} holds no finished shards: {MANIFEST} is absent")
        tree = json.loads(manifest.read_text(encoding="utf-8"))
        files: dict[str, int] = tree.pop("files")
        for name, size in files.items():
            file = self.directory / name
            found = file.stat().st_size if file.is_file() else 0
            if found != size:
                raise TrainingDataError(f"{file} has {found} bytes where {size} were written")
        self.about = About(**{key: _tuples(value) for key, value in tree.items()})  # type: ignore[arg-type]
        self.allowed = np.array(self.about.allowed, bool)
        self._chunks: list[tuple[str, int]] = []  # file and record batch, all variants
        self._of_variant: list[list[int]] = [[] for _ in self.about.n_rows]
        for name in sorted(files):
            with self._open(name) as reader:
                added = range(len(self._chunks), len(self._chunks) + reader.num_record_batches)
                self._of_variant[int(name.split("-")[1])].extend(added)
                self._chunks.extend((name, i) for i in range(reader.num_record_batches))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags in id order."""
        return iob2_tags(self.about.types)

    def epoch(self, epoch: int, *, seed: int, batch_tokens: int) -> Iterator[Rows]:
        """The batches of an epoch in order, as places of their texts; 8,192 texts at most are held together.

        Every text of the epoch's variant is in one batch. Seed and epoch alone decide.
        """
        rng = np.random.default_rng([seed, epoch])
        chunks = rng.permutation(self._of_variant[epoch % len(self._of_variant)])
        for at in range(0, len(chunks), _POOL_CHUNKS):
            drawn = chunks[at : at + _POOL_CHUNKS].tolist()
            lengths = [self._lengths(chunk) for chunk in drawn]
            places = [
                np.stack([np.full(len(n), c), np.arange(len(n))], 1)
                for c, n in zip(drawn, lengths, strict=True)
            ]
            place = np.concatenate(places)
            for rows in group(np.concatenate(lengths), batch_tokens=batch_tokens, rng=rng):
                yield place[rows]

    def read(self, rows: Rows) -> Batch:
        """The texts of a batch, padded."""
        return pad([self._example(batch, row) for batch, row in self._located(rows)], self.about.pad_id)

    def names(self, rows: Rows) -> tuple[str, ...]:
        """Where the texts of a batch came from."""
        return tuple(str(batch.column("name")[row]) for batch, row in self._located(rows))

    def _located(self, rows: Rows) -> Iterator[tuple[pa.RecordBatch, int]]:
        chunks = {int(c): self._batch(int(c)) for c in np.unique(rows[:, 0])}
        return ((chunks[c], r) for c, r in rows.tolist())

    def _batch(self, chunk: int) -> pa.RecordBatch:
        name, index = self._chunks[chunk]
        with self._open(name) as reader:
            return reader.get_batch(index)

    def _lengths(self, chunk: int) -> NDArray[np.int64]:
        ids = cast("pa.ListArray[pa.Int32Scalar]", self._batch(chunk).column("ids"))
        return np.asarray(np.diff(ids.offsets.to_numpy()), np.int64)

    def _open(self, name: str) -> pa.ipc.RecordBatchFileReader:
        # Opened anew each time: what is mapped counts as a process's memory until it is unmapped.
        return pa.ipc.open_file(pa.memory_map(str(self.directory / name)))

    @staticmethod
    def _example(batch: pa.RecordBatch, row: int) -> Example:
        ids, case, target = (batch.column(n)[row].values.to_numpy() for n in ("ids", "case", "target"))
        return Example(str(batch.column("name")[row]), ids, case, target)


def _tuples(value: object) -> object:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
