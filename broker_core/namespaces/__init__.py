"""Namespaces and their clocks: create, change, delete, get, list; pause, step and resume a clock.

Each function is a use case (see store.use_cases). Changes require the right MANAGE, reads BROWSE. They raise EntityNotFound,
EntityExists, InvalidArgument, NotAllowed and NotAuthorized. The system namespace holds Vitrine's own queues: only processes can
change it, and its clock always shows real time.
"""

from .clocks import Clock, get_clock, pause_clock, resume_clock, step_clock, step_clock_to
from .namespaces import (
    MOST_ARCHIVE_DAYS,
    MOST_MEGABYTES,
    Limits,
    Namespace,
    change_limits,
    create_namespace,
    delete_namespace,
    ensure_namespace,
    get_namespace,
    list_namespaces,
    preview_limits,
    update_namespace,
)
from .protection import hide_entities, set_protected
