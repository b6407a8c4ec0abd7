"""Settles a message that the user holds. Shared by the receiver page and the message page."""

from __future__ import annotations

from django.http import HttpRequest

from broker_core import reads, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.lock_tokens import SettleReport, sequence_number_of
from broker_core.common.types import Actor, EntityAddress, SubQueue
from broker_core.reads import MessageRow
from broker_core.service_bus.rules.display_state import DisplayState
from explorer.frames.shell import Act, act
from explorer.service_bus.forms.receiver import SettleForm

SETTLEMENTS = {
    "renew": "Lock of message {} renewed.",
    "complete": "Completed message {}.",
    "abandon": "Abandoned message {}. It is available again; the delivery counts as failed.",
    "release": "Released message {}; delivery count unchanged.",
    "defer": "Deferred message {}. Receive it again by its sequence number.",
    "dead-letter": "Moved message {} to the dead-letter queue.",
}


def is_held_by(row: MessageRow, actor: Actor) -> bool:
    """Whether the actor holds a valid lock on the message, by the lock's label."""
    return row.display_state == DisplayState.LOCKED and row.locked_by == actor.holder_label and row.lock_token is not None


def settle(request: HttpRequest, address: EntityAddress, how: str, form: SettleForm) -> Act:
    """Settle or renew the message with the form's lock token. A lost lock is refused (SB-070) and audited."""
    if how not in SETTLEMENTS:
        return Act(error=InvalidArgument("action", f"{how!r} must be one of {', '.join(SETTLEMENTS)}"))
    try:
        token = form.require()["token"]
        properties = form.properties()
    except InvalidArgument as exc:
        return Act(error=exc)
    number = sequence_number_of(token)
    return act(
        request, how, address, lambda: _settle(address, how, form.cleaned_data, properties, request.actor),
        target=f"message {number}", says=lambda _: _result_text(address, how, number, request.actor),
    )  # fmt: skip


def _result_text(address: EntityAddress, how: str, number: int, actor: Actor) -> str:
    detail = reads.message(address, number, actor=actor) if how == "abandon" and address.subqueue == SubQueue.MAIN else None
    if detail and detail.row.address != address:
        return f"Abandoned message {number}. It was the last delivery, so the message was dead-lettered."
    return SETTLEMENTS[how].format(number)


def _settle(address: EntityAddress, how: str, values: dict, properties: dict | None, actor: Actor) -> SettleReport:
    token = values["token"]
    match how:
        case "dead-letter":
            return service_bus.dead_letter(
                address, token, values["reason"] or None, values["description"] or None, properties, actor=actor
            )  # fmt: skip
        case "abandon":
            return service_bus.abandon(address, token, properties, actor=actor)
        case "defer":
            return service_bus.defer(address, token, properties, actor=actor)
        case _:
            return {"renew": service_bus.renew, "complete": service_bus.complete, "release": service_bus.release}[how](
                address, token, actor=actor
            )
