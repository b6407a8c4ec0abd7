"""Hostile inputs: valid ones with pieces replaced, put in, taken out or repeated, and any bytes."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from .seeds import PIECES, SEEDS

_LENGTHS = (0, 0, 1, 1, 2, 5, 30)  # of what a piece replaces
_CHANGES = (1, 1, 2, 4)
_SAFE = "/%?&=$"
_WORD = re.compile(rb"[^\s<>/?&=:;'\",]+")


def hostile(target: str, random: Random) -> bytes:
    """One input for a target; the same for the same state of `random`."""
    if random.random() < 0.1:
        return random.randbytes(random.randrange(300))
    data = random.choice(SEEDS[target])
    for _ in range(random.choice(_CHANGES)):
        part = _part(data, random)
        start, end = _place(data, part, random)
        piece = _piece(data, PIECES[target], random)
        data = data[:start] + (quote_from_bytes(piece, _SAFE).encode() if part.is_encoded else piece) + data[end:]
    return data


class _Part(NamedTuple):
    start: int
    end: int
    is_encoded: bool = False


def _part(data: bytes, random: Random) -> _Part:
    """What is changed: most of a request is left as it is, so that it stays one of HTTP."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator or random.random() < 0.2:
        return _Part(0, len(data))
    if body and random.random() < 0.7:
        return _Part(len(head) + len(separator), len(data))
    line = head.partition(b"\r\n")[0]
    return _Part(line.find(b" ") + 1, max(line.rfind(b" "), 0), is_encoded=True)


def _place(data: bytes, part: _Part, random: Random) -> tuple[int, int]:
    """Where something is replaced: a word, such as the text of an element, or any bytes."""
    words = list(_WORD.finditer(data, part.start, part.end))
    if words and random.random() < 0.6:
        return random.choice(words).span()
    at = random.randint(min(part.start, part.end), part.end)
    return at, min(at + random.choice(_LENGTHS), part.end)


def _piece(data: bytes, pieces: list[bytes], random: Random) -> bytes:
    match random.randrange(6):
        case 0:
            return random.randbytes(random.randrange(12))
        case 1:
            at = random.randrange(len(data) + 1)
            return data[at : at + random.randrange(60)]
    return random.choice(pieces)
