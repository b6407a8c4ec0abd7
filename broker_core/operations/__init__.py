"""Operations on many messages of one entity: their records, and the steps that hide messages and undo (docs/design.md D18).

What an operation does to a message is up to its family; who starts, runs and shows operations, to the explorer.
"""

from .batches import Batch, ClaimLost, Outcome, Skip, run_batch
from .deletions import delete_entities, delete_rows, require_operation_id, restore
from .exporting import export_lines, exported_lines
from .hiding import NOT_IN_LIST, Copies, Places, entity_status, hide, keeping_originals
from .importing import next_lines, send_lines
from .records import (
    FILE_TIME,
    OPEN,
    UNDO_TIME,
    Kind,
    Operation,
    Place,
    Selection,
    State,
    change,
    check_pace,
    claim,
    claim_token,
    create,
    due,
    end,
    find,
    new_number,
    newest,
    set_pace,
)
from .repairing import repaired
from .undoing import NOT_UNDONE, undo_batch
