"""What a roll-up counts, and the bins of its histograms. Without PySpark, so that pages use the same definitions.

A bin holds the whole numbers of microseconds from its lower bound up to the next one's. Below 32 each number has its own;
above, each octave has 32 of equal width, so a value is off by at most 1 in 64 when its bin's middle stands for it. Bins follow
from shifts of whole numbers alone: they are the same on every machine, and they add up over hours, days and entities.
"""

from datetime import timedelta

STEP = timedelta(minutes=5)  # of roll-ups
COARSE = timedelta(hours=1)  # of those of days that are older than AGED
AGED = timedelta(days=7)

BITS = 5  # 2^BITS bins an octave

# Kinds of rows of counts: of lives, or of attempts.
LIFE = 0
ATTEMPT = 6
# Measures of a life, which have histograms.
WAITING = 1  # enqueued to first received
# Of messages that were never received: enqueued to the end, or to the end of the time-to-live, if they were removed later. Their
# waiting would have been longer.
NEVER_RECEIVED = 2
PROCESSING = 3  # last received to settled by a receiver


def bin_of(value: int) -> int:
    """The bin of a number from 0 on."""
    octave = value.bit_length() - 1 - BITS
    return value if octave < 0 else (octave << BITS) + (value >> octave)


def lower_bound(number: int) -> int:
    """The smallest value in a bin."""
    octave = (number >> BITS) - 1
    return number if octave < 0 else ((1 << BITS) + number % (1 << BITS)) << octave


def middle(number: int) -> float:
    """What stands for the values in a bin."""
    return (lower_bound(number) + lower_bound(number + 1) - 1) / 2
