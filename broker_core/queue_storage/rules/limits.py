"""The numbers of Queue Storage (docs/queue-storage.md)."""

from __future__ import annotations

from datetime import timedelta

LONGEST_VISIBILITY_TIMEOUT = timedelta(days=7)
SHORTEST_LEASE = timedelta(seconds=1)  # a get makes invisible for at least so long (QS-022)
SHORTEST_LIFE = timedelta(seconds=1)
# What a put without a time-to-live gets (QS-003). This object stands for "not given", which an equal one does not (QS-904).
DEFAULT_LIFE = timedelta(days=7)
DEFAULT_LEASE = timedelta(seconds=30)
MOST_MESSAGES = 32  # of one get or peek
TEXT_BYTES = 65_536
METADATA_BYTES = 8 * 1024
LONGEST_GRACE = timedelta(days=7)
DEFAULT_GRACE = timedelta(seconds=60)
