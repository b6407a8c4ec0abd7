"""Finds an operation for a page whose address names no namespace."""

from __future__ import annotations

from django.http import Http404, HttpRequest

from broker_core import operations as core
from broker_core.common.types import Right
from broker_core.operations import Operation
from explorer import sandbox_names
from explorer.people.roles import actor_for


def find_operation(request: HttpRequest, operation_id: int) -> Operation:
    """The operation. The request's actor then has the user's rights in the operation's namespace, which may be a sandbox."""
    operation = core.find(operation_id)
    if operation is None:
        raise Http404(f"There is no operation {operation_id}.")
    if sandbox_names.may_be_one(operation.address.namespace):
        if sandbox_names.is_of_another(request.user, operation.address.namespace) and request.actor.rights is not Right.ALL:
            raise Http404(f"There is no operation {operation_id}.")
        request.actor = actor_for(request.user, operation.address.namespace)
    request.actor.require(Right.BROWSE, operation.address)
    return operation
