"""Read-only queries: lists, counts, search, timelines, health.

None of them counts as activity (SB-190), so viewing a queue does not prevent its deletion when idle. Every function takes an
`actor` and requires Right.BROWSE; those that show bodies require Right.SEE_BODIES as well. State is derived from the namespace's
clock (docs/design.md D5, D6), and each result has the instant at which it is true. Capped results say so.
"""

from .actors import MOST_ACTOR_EVENTS, ActorActivity, ActorInEntity, actor_activity, actor_known
from .attention import Candidates, Facts, TopReason, attention
from .broker_health import (
    Health,
    SweepRun,
    health,
    last_sweep_runs,
    sweep_runs,
)
from .conditions import quoted_name
from .dead_letters import MOST_GROUPS, DeadGroup, DeadGroups, Failure, dead_groups, description_pattern, failures
from .deleted_entities import DeletedEntity, deleted_entity
from .entities import (
    Counts,
    EntityRow,
    NamespaceRow,
    counts,
    entity,
    namespaces,
    now,
    overview,
    subscriptions,
)
from .entity_lists import (
    Counted,
    EntityFilter,
    Item,
    Tallies,
    Tally,
    Tree,
    entities_by_id,
    list_entities,
    tallies,
    tree,
)
from .filters import (
    MessageFilter,
    exactly,
    parse_filter,
    parse_tokens,
)
from .flows import Flow, Flows, Link, LinkKind, Way, flows, links
from .idleness import Idleness, KeptBy, idleness
from .kept import KeptMessage, kept_body, kept_bytes, kept_in, kept_message
from .lexing import Token
from .locks import Holder, Lock, LockFilter, Locks, locks
from .messages import (
    BODY_BYTES,
    EXPIRED,
    MOST_SUGGESTED,
    SUGGEST_FROM,
    Body,
    Explanation,
    Matching,
    MessageDetail,
    MessageProperties,
    MessageRow,
    Tab,
    body,
    contents,
    count_messages,
    frequent_values,
    list_messages,
    message,
    message_properties,
    messages_by_number,
    property_names,
    stored,
)
from .names import (
    MOST_NAMES,
    Name,
    Names,
    names,
)
from .next_changes import (
    Change,
    NextChange,
    next_change,
    next_changes,
)
from .oldest_messages import OldestMessage, StoredState, oldest_messages
from .past_of_entities import Past, past
from .revisions import Revision, revisions
from .searching import FoundMessage, Slice, WithId, exact_id, messages_with_id, search_slice
from .session_lists import (
    SessionRow,
    sessions,
)
from .shared import (
    EXPIRED_CAP_OF_MANY,
    PAGE_ROWS,
    Capped,
    ClockReading,
    LinkedMessage,
    Page,
)
from .sizes import EntitySize, NamespaceSize, largest_entities, namespace_sizes
from .timelines import (
    FROM_THE_BEGINNING,
    Event,
    EventFilter,
    MessageMatch,
    News,
    Position,
    SearchResult,
    events,
    events_since,
    find,
    gone,
    position,
    timeline,
)
from .traffic import (
    MOST_MINUTES,
    RECENT_MINUTES,
    Recent,
    Times,
    TrafficPoint,
    namespace_traffic,
    recent_traffic,
    traffic,
)
