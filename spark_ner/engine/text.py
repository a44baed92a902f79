"""What a character is: classes of code points, looked up in one table that fills itself as text is seen."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

BLANK, UPPER, LOWER, DIGIT, PUNCTUATION, UNSPACED, MARK, LETTER = (1 << bit for bit in range(8))
_UNSEEN = 0
_LONE_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\ufffd".encode()

# Scripts written without blanks between words: each token is a word of its own there.
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width kana
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)

# Between letters or digits these divide no word, unless the pre-tokenizer does (UAX #29, and hyphens).
CONNECTORS = frozenset(map(ord, "-'’._·‐‑"))


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of a string; a lone surrogate stays as it is, one code point."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def clean(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD: offsets stay, and UTF-8 is possible."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def decoded(raw: bytes) -> str:
    """Bytes as text; each unit that is none (a bad byte, a lone surrogate's three) counts as one U+FFFD."""
    return _LONE_SURROGATE.sub(_REPLACEMENT, raw).decode("utf-8", "replace")


def classes(points: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Class bits of each code point; amortised cost is one table look-up."""
    table = _table()
    found = table[points]
    if (found == _UNSEEN).any():
        for point in np.unique(points[found == _UNSEEN]).tolist():
            table[point] = _classify(point)
        found = table[points]
    return found


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint16]:
    return np.zeros(0x110000, np.uint16)


def _classify(point: int) -> int:
    seen = 1 << 15  # so that a code point without any class is not looked up again
    character = chr(point)
    category = unicodedata.category(character)
    bits = seen
    if character.isspace() or category in ("Zs", "Zl", "Zp"):
        bits |= BLANK
    if category[0] == "L":
        bits |= LETTER
    if category in ("Lu", "Lt"):
        bits |= UPPER
    elif category == "Ll":
        bits |= LOWER
    if category[0] == "N":
        bits |= DIGIT
    if category[0] == "M":
        bits |= MARK
    if category[0] in "PS":
        bits |= PUNCTUATION
    if any(low <= point <= high for low, high in _UNSPACED_RANGES):
        bits |= UNSPACED
    return bits
