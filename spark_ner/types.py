"""Entities of many documents, in columns; to and from Arrow without a Python object an entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ENTITY_TYPE = pa.struct(
    [
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("label", pa.string()),
        pa.field("score", pa.float32()),
    ]
)
ENTITIES_TYPE = pa.list_(ENTITY_TYPE)


class Entity(NamedTuple):
    """One entity: `document[start:end] == text`, in code points, end exclusive."""

    start: int
    end: int
    text: str
    label: str
    score: float


@dataclass(frozen=True)
class Entities:
    """The entities of `n` documents in order.

    Document `i` owns rows `offsets[i]:offsets[i + 1]`; `valid[i]` is false for a null document and for one
    that could not be processed, whose reason is `errors[i]`.
    """

    offsets: NDArray[np.int32]  # (n + 1,)
    start: NDArray[np.int32]  # (n_entities,) code points
    end: NDArray[np.int32]
    text: list[str]
    label: NDArray[np.int16]  # index into labels
    score: NDArray[np.float32]
    labels: tuple[str, ...]
    valid: NDArray[np.bool_]  # (n,)
    errors: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.valid)

    def __getitem__(self, document: int) -> list[Entity] | None:
        """Entities of one document; None for a null or failed one."""
        if not self.valid[document]:
            return None
        rows = range(int(self.offsets[document]), int(self.offsets[document + 1]))
        return [
            Entity(
                int(self.start[i]),
                int(self.end[i]),
                self.text[i],
                self.labels[self.label[i]],
                float(self.score[i]),
            )
            for i in rows
        ]

    def __iter__(self) -> Iterator[list[Entity] | None]:
        return (self[i] for i in range(len(self)))

    def to_arrow(self) -> pa.ListArray[pa.ListScalar[pa.StructType]]:
        """An `array<struct<start,end,text,label,score>>` column, null where a document is not valid."""
        names = pa.array(self.labels, pa.string())
        values = pa.StructArray.from_arrays(
            [
                pa.array(self.start, pa.int32()),
                pa.array(self.end, pa.int32()),
                pa.array(self.text, pa.string()),
                names.take(pa.array(self.label, pa.int16())),
                pa.array(self.score, pa.float32()),
            ],
            fields=list(ENTITY_TYPE),
        )
        # A null offset marks a null list: understood by every pyarrow, unlike the mask argument.
        mask = np.append(~self.valid, False)
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32(), mask=mask), values)

    def errors_to_arrow(self) -> pa.StringArray:
        """One sentence for each document that failed, null elsewhere."""
        return pa.array([self.errors.get(i) for i in range(len(self))], pa.string())
