"""Sets up the demo once, at the first start. What users change or delete afterwards is left as it is."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from broker_core import namespaces
from explorer.models import Demonstration
from explorer.people import users
from explorer.people.roles import ADMINISTRATOR, OPERATOR, VIEWER

from .parts import parts

KEPT_FOR = timedelta(hours=1)  # messages that ended
PEOPLE = {"vera": VIEWER, "otto": OPERATOR, "ada": ADMINISTRATOR}  # no passwords: they sign in with links


def set_up_once() -> None:
    """Set up the demo unless that was done before. A concurrent second call waits, then finds it done."""
    with transaction.atomic():
        _, is_new = Demonstration.objects.get_or_create(pk=Demonstration.ONLY)
        if is_new:
            for part in parts():
                part.seed()
                namespaces.update_namespace(part.NAMESPACE, keep_messages_for=KEPT_FOR)
            users.ensure(PEOPLE)
