"""What saved filters and message templates have in common: who may change one, and deleting it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from broker_core.common.errors import NotAuthorized
from explorer.frames.shell import act, notify_error
from explorer.models.saved import Saved
from explorer.people.roles import ADMINISTRATOR, role_name


def may_change(request: HttpRequest, one: Saved) -> bool:
    """The owner may, and an administrator may change a shared one."""
    return one.owner_id == request.user.pk or (one.is_shared and role_name(request.user) == ADMINISTRATOR)


def require_change(request: HttpRequest, one: Saved, noun: str) -> None:
    if not may_change(request, one):
        raise NotAuthorized(str(request.actor), "MANAGE", f"the {noun} of {one.owner}")


def delete_saved(request: HttpRequest, found: Saved | None, noun: str) -> None:
    """Delete it, with a notice and an audit record. found: None, if it is gone, or of somebody who does not share it."""
    if found is None:
        messages.info(request, f"The {noun} was already deleted.")
        return

    def call() -> None:
        require_change(request, found, noun)
        found.delete()

    done = act(request, f"delete {noun}", None, call, target=found.name, says=lambda _: f'Deleted the {noun} "{found.name}".')
    if done.error:
        notify_error(request, done.error)
