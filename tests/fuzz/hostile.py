"""Hostile inputs: valid ones with pieces replaced, put in, taken out or repeated, and any bytes."""

from __future__ import annotations

from random import Random

from .seeds import PIECES, SEEDS

_LENGTHS = (0, 0, 1, 1, 2, 5, 30)  # of what a piece replaces


def hostile(target: str, random: Random) -> bytes:
    """One input for a target; the same for the same state of `random`."""
    if random.random() < 0.1:
        return random.randbytes(random.randrange(300))
    data = random.choice(SEEDS[target])
    for _ in range(random.randint(1, 4)):
        at, length = random.randrange(len(data) + 1), random.choice(_LENGTHS)
        data = data[:at] + _piece(data, random) + data[at + length :]
    return data


def _piece(data: bytes, random: Random) -> bytes:
    match random.randrange(6):
        case 0:
            return random.randbytes(random.randrange(12))
        case 1:
            at = random.randrange(len(data) + 1)
            return data[at : at + random.randrange(60)]
    return random.choice(PIECES)
