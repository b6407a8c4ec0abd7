"""What saved filters and message templates have in common: who may change one, and deleting it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from broker_core.common.errors import NotAuthorized
from explorer.frames.shell import act, notify_error
from explorer.models.saved import Saved
from explorer.people.roles import ADMINISTRATOR, role_name


def may_change(request: HttpRequest, saved: Saved) -> bool:
    """The owner may, and an administrator may change a shared one."""
    return saved.owner_id == request.user.pk or (saved.is_shared and role_name(request.user) == ADMINISTRATOR)


def require_change(request: HttpRequest, saved: Saved, noun: str) -> None:
    if not may_change(request, saved):
        raise NotAuthorized(str(request.actor), "MANAGE", f"the {noun} of {saved.owner}")


def delete_saved(request: HttpRequest, saved: Saved | None, noun: str) -> None:
    """Delete it, with a notice and an audit record. saved: None if it is gone, or of somebody who does not share it."""
    if saved is None:
        messages.info(request, f"The {noun} was already deleted.")
        return

    def call() -> None:
        require_change(request, saved, noun)
        saved.delete()

    done = act(request, f"delete {noun}", None, call, target=saved.name, says=lambda _: f'Deleted the {noun} "{saved.name}".')
    if done.error:
        notify_error(request, done.error)
