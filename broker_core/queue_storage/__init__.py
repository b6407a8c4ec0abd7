"""Storage accounts, queues and their messages, after Azure Queue Storage (QS- rules).

Each function is a use case (see store.use_cases): call it, `await name.aio(...)`, or compose `name.steps(...)`. All take an
`actor`; the default is the calling process, with all rights. Rights: Send to put; Listen to get, peek, update and delete; Manage
to create, change, delete and clear queues; Operate to clear, edit, release, remove and requeue. Errors are those of
queue_storage.rules.errors, with the service's codes; nothing is stored or changed when one is raised.
"""

from .changing import Deleted, delete, delete_all, update
from .editing import edit
from .getting import get, peek
from .operating import clear, move, release, remove, requeue_poison
from .preview import change_options, preview_options
from .putting import put, put_all
from .queues import (
    AccountContents,
    StorageQueue,
    approximate_count,
    create_account,
    create_queue,
    delete_account,
    delete_queue,
    ensure_account,
    ensure_queue,
    get_account,
    get_queue,
    list_accounts,
    list_queues,
    preview_delete_account,
    set_metadata,
    set_status,
    update_queue,
)
from .reading import CameFrom, came_from, explain
from .values import GotMessage, PeekedMessage, PutMessage, Updated
