"""Operations on many messages, with progress, report and undo (docs/design.md D18).

`count` says what a selection matches, `start` does it: at once if it is small, else by a worker, in batches.
"""

from .control import change, set_pace
from .selecting import Counted, count, selection
from .starting import DIRECT, start
