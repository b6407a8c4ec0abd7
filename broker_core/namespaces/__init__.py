"""Namespaces and their clocks: create, change, delete, get, list; pause, step and resume a clock.

Each function is a use case (see store.driver). Changing needs the right MANAGE, reading BROWSE. They raise EntityNotFound,
EntityExists, InvalidArgument, NotAllowed and NotAuthorized. The system namespace carries Vitrine's own work: only processes
change it, and its clock is always the real one.
"""

from .clocks import Clock, get_clock, pause_clock, resume_clock, step_clock, step_clock_to
from .namespaces import (
    Namespace,
    create_namespace,
    delete_namespace,
    ensure_namespace,
    get_namespace,
    limits,
    list_namespaces,
    update_namespace,
)
