"""Service Bus operations on messages (send, receive, settle, renew, peek, schedule, cancel, resubmit, purge) and on sessions.

Each function is a use case (see store.use_cases): call it to run it now, `await name.aio(...)` under asyncio, `name.steps(...)`
to compose. All take an `actor`; the default is the calling process, with all rights. They raise the errors of common.errors, and
nothing is stored or changed when they do. Rights: Send to send, schedule and cancel, Listen to receive, settle and peek, Operate
to edit, resubmit and purge.
"""

from . import sweeps
from .messages.editing import edit
from .messages.moving import move
from .messages.operating import dead_letter_unlocked, delete_batch, drop_locks, purge, release_locks, release_session, resubmit
from .messages.reading import RuleRow, explain, rules_of
from .messages.receiving import peek, receive, receive_and_delete, receive_deferred, receive_from
from .messages.sending import cancel_scheduled, send
from .messages.settling import abandon, complete, dead_letter, defer, release, renew
from .routing import PublishedMessage, RuleDraft, RuleReplay, published_messages, replay_rules, route
from .rules.amqp.sections import AmqpSections, Section
from .rules.amqp_messages import body_value, encode_body, encode_message, read_message, sections
from .rules.values import (
    LockedMessage,
    Message,
    QueueSettings,
    Session,
    StoredMessage,
    SubscriptionSettings,
    TopicSettings,
)
from .sessions import (
    accept_session,
    close_session,
    get_session_state,
    list_sessions,
    receive_and_delete_from_session,
    receive_from_session,
    renew_session,
    set_session_state,
)
from .transactions import Transaction, transaction
