"""The connections of all clients, by any protocol: the list, one of them, and closing one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import reads
from broker_core.common.actors import parsed
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.reads import EntityFilter, LockFilter
from explorer import sandbox_names
from explorer.frames import connections
from explorer.frames.connections import ConnectionLine, ConnectionPages
from explorer.frames.family import installed
from explorer.frames.forms.queries import PageQuery
from explorer.frames.shell import Act, act, cleaned, page, show, shown_or_acted_on, targets
from explorer.frames.vocabularies import CONNECTIONS
from explorer.frames.vocabulary import Terms, TermsField, canonical, condition, field_of
from explorer.live.page import Live, LiveRequest, live

ROWS = 50
LOCKS = 50
CLOSE = "close "  # begins the action of a form; the id follows
SECONDS = 1.0  # connections leave no event: they are looked at so often


@live
@page
@require_http_methods(["GET", "POST"])
def connections_list(request: HttpRequest) -> HttpResponse:
    """GET shows the connections; POST closes one."""
    if redirect := canonical(request, CONNECTIONS):
        return redirect
    query, field = cleaned(PageQuery(request.GET)), field_of(request, CONNECTIONS)
    return shown_or_acted_on(request, lambda done=Act(): _show(request, field, query["page"] or 1, done), lambda: _close(request))


@live
@page
@require_GET
def connection(request: HttpRequest, connection_id: str) -> HttpResponse:
    """One connection: what it is, what it does, and what it holds."""
    line = _visible_line(request, connection_id)
    if line is None and not isinstance(request, LiveRequest):
        raise EntityNotFound(connection_id, "connection")
    context: dict[str, Any] = {"section": "locks", "line": line, "connection_id": connection_id}
    if line is not None and line.unsettled is None:
        entities = EntityFilter(include_hidden=True, include_system=True, except_namespaces=_hidden(request))
        context["locks"] = reads.locks(LockFilter(entities, actor=line.holder), limit=LOCKS, actor=request.actor)
        context["locks_filter"] = condition("holder", line.holder)
    parts = Live({"explorer/_connection.html": SECONDS}, refresh_seconds=SECONDS, personal=True)
    return show(request, "connection", context, live=parts)


def _show(request: HttpRequest, field: TermsField, number: int, done: Act) -> HttpResponse:
    context: dict[str, Any] = {"section": "locks", "filter": field, "error": done.error}
    if not field.problem:
        found = _matching(_lines(request, field.terms.get("namespace")), field.terms)
        pages = max(1, -(-len(found) // ROWS))
        number = min(number, pages)
        context |= {
            "lines": found[(number - 1) * ROWS : number * ROWS],
            "count": len(found),
            "number": number,
            "pages": pages,
        }
    parts = {} if field.problem else {"explorer/_connection_list.html": SECONDS}
    fragment = "_connection_list" if targets(request, "connection-list") else "_connections"
    return show(
        request, "connections", context, fragment=fragment, status=field.status if field.problem else done.status,
        live=Live(parts, refresh_seconds=SECONDS, personal=True),  # sandboxes of others are hidden
    )  # fmt: skip


def _lines(request: HttpRequest, namespace: str | None = None) -> list[ConnectionLine]:
    """All that this person may see."""
    hidden = set(_hidden(request))
    found = connections.lines(sources(), request.actor, namespace=namespace)
    return [line for line in found if line.namespace not in hidden]


def _visible_line(request: HttpRequest, connection_id: str) -> ConnectionLine | None:
    line = connections.line_of(sources(), connection_id, request.actor)
    return None if line is None or line.namespace in _hidden(request) else line


def _hidden(request: HttpRequest) -> tuple[str, ...]:
    return sandbox_names.hidden_sandboxes(request.user, request.actor, own=True)


def sources() -> list[ConnectionPages | None]:
    """The families that keep connections themselves."""
    return [pages.connections for pages in installed()]


def _matching(lines: Iterable[ConnectionLine], terms: Terms) -> list[ConnectionLine]:
    """Those that meet all conditions."""
    protocol, entity = (terms.get("protocol") or "").lower(), (terms.get("entity") or "").lower()
    by, holder = terms.get("by") or "", terms.get("holder") or ""
    words = [word.lower() for word in terms.words]
    return [
        line
        for line in lines
        if protocol in line.protocol.lower()
        and (not entity or any(entity in str(use.address).lower() for use in line.uses))
        and _is_by(by, line.actor)
        and _is_by(holder, line.holder or line.actor)
        and all(word in line.words for word in words)
    ]


def _is_by(wanted: str, stored: str) -> bool:
    """Whether a stored actor or holder is meant: with a kind exactly, with or without the client that uses a key; else a part of
    the name."""
    if not parsed(wanted).kind:
        return wanted.lower() in stored.lower()
    return wanted == stored or str(parsed(stored)) == wanted


def _close(request: HttpRequest) -> Act:
    """Close the connection that a form names: its action is "close ID". The reason is for the client and the audit."""
    name = request.POST.get("action", "")
    line = _visible_line(request, name.removeprefix(CLOSE)) if name.startswith(CLOSE) else None
    if line is None:
        return Act(error=InvalidArgument("connection", "has ended, or is not on this page"))
    reason = request.POST.get("reason", "").strip()
    told = f"Closed by {request.actor.name}: {reason}"[:200] if reason else ""
    return act(
        request, "close connection", None, lambda: connections.close(sources(), line, told, request.actor),
        target=f"connection {line.id} {line.name}".strip(),
        says=lambda was_there: f"Closed connection {line.name}: {reason}" if was_there else "The connection was already closed.",
    )  # fmt: skip
