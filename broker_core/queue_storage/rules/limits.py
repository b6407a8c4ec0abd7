"""The numbers of Queue Storage (docs/queue-storage.md)."""

from __future__ import annotations

from datetime import timedelta

LONGEST_VISIBILITY_TIMEOUT = timedelta(days=7)
SHORTEST_LEASE = timedelta(seconds=1)  # minimum visibility timeout of a get (QS-022)
SHORTEST_LIFE = timedelta(seconds=1)
# The default time-to-live of a put (QS-003). This object itself stands for "not given"; an equal timedelta does not (QS-904).
DEFAULT_LIFE = timedelta(days=7)
DEFAULT_LEASE = timedelta(seconds=30)
MOST_MESSAGES = 32  # per get or peek
TEXT_BYTES = 65_536
METADATA_BYTES = 8 * 1024
LONGEST_GRACE = timedelta(days=7)
DEFAULT_GRACE = timedelta(seconds=60)
