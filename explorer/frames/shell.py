"""Shared by all pages: the request's actor, page or fragment, error pages, and actions with their audit record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.vary import vary_on_headers

from broker_core.common.errors import (
    BrokerError,
    EntityNotFound,
    InvalidArgument,
)
from broker_core.common.types import EntityAddress, Right, SubQueue
from broker_core.reads import EntityRow
from broker_core.store import connections
from explorer import audit, sandbox_names
from explorer.live.page import Live, LiveAnswer, LiveRequest
from explorer.people.roles import actor_for

from . import last_namespace
from .presenters import SUBQUEUES
from .values import Act, status_of

_HEADINGS = {
    400: "Invalid request", 403: "Permission denied", 404: "Not found", 405: "Method not allowed", 409: "Conflict",
    503: "Temporarily unavailable",
}  # fmt: skip


UNDO = "undo:"  # begins the tag of a notice with an Undo button; its URL follows


class BadQuery(Exception):
    """Invalid query parameters. problems: (parameter, what is wrong with it)."""

    def __init__(self, problems: list[tuple[str, str]]):
        super().__init__(problems)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class May:
    """The user's rights, for controls that are disabled with a reason."""

    rights: Right

    @property
    def send(self) -> bool:
        return Right.SEND in self.rights

    @property
    def receive(self) -> bool:
        return Right.LISTEN in self.rights

    @property
    def operate(self) -> bool:
        return Right.OPERATE in self.rights

    @property
    def manage(self) -> bool:
        return Right.MANAGE in self.rights

    @property
    def see_bodies(self) -> bool:
        return Right.SEE_BODIES in self.rights


def page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view for signed-in users: sets request.actor, and renders errors as a page or fragment with their status. Runs in the
    database of the namespace in its address."""

    @vary_on_headers("HX-Request", "Cookie")
    @wraps(view)
    def wrapped(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return _signed_out(request)
        with connections.of(kwargs.get("namespace")):
            if isinstance(request, LiveRequest):
                return _live_answer(view, request, *args, **kwargs)
            request.actor = actor_for(request.user, kwargs.get("namespace"))
            return _answer(view, request, *args, **kwargs)

    return wrapped


def _signed_out(request: HttpRequest) -> HttpResponse:
    """Opening a page leads to the sign-in. A form, or a request of htmx, comes from a page that was open when the session ended:
    it is refused without replacing anything, so that what was typed stays."""
    if request.method != "POST" and not wants_fragment(request):
        return redirect_to_login(request.get_full_path(), reverse("explorer:sign_in"))
    origin = urlsplit(request.headers.get("HX-Current-URL") or request.headers.get("Referer") or "/")
    following = urlencode({"next": f"{origin.path}?{origin.query}" if origin.query else origin.path})
    context = {
        "heading": "Signed out",
        "text": "You are signed out. Nothing was changed.",
        "status": 401,
        "error": None,
        "sign_in_url": f"{reverse('explorer:sign_in')}?{following}",
    }
    if wants_fragment(request):
        return as_notice(render(request, "explorer/_refused.html", context, status=401))
    return render(request, "errors/page.html", context, status=401)


def as_notice(response: HttpResponse) -> HttpResponse:
    """An answer to htmx that is shown among the notices, and replaces nothing else."""
    response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#notices", "innerHTML"
    return response


def _answer(view: Callable[..., HttpResponse], request: HttpRequest, *args, **kwargs) -> HttpResponse:
    if any("\x00" in value for _, values in request.POST.lists() for value in values):  # PostgreSQL stores no such text
        return refusal(request, 400, "The form contains the character NUL, which cannot be stored. Nothing was changed.")
    if any("\x00" in str(value) for value in kwargs.values()):
        return refusal(request, 404, "No name contains the character NUL.")
    try:
        _require_access(request, kwargs.get("namespace"))
        response = view(request, *args, **kwargs)
    except BadQuery as exc:
        return refusal(request, 400, "This link is invalid or out of date.", problems=exc.problems)
    except EntityNotFound as exc:
        noun = "queue or topic" if exc.what == "messaging entity" else exc.what
        return refusal(request, status_of(exc), f"There is no {noun} named {exc.entity}.", error=exc)
    except BrokerError as exc:
        return refusal(request, status_of(exc), str(exc), error=exc)
    return response if response.status_code != 405 else _not_opened(request, response)


def _not_opened(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """A page for 405, which Django leaves empty: the address of a form was opened as a link, or the reverse."""
    methods = response.headers["Allow"]
    text = (
        f"This address does not accept {request.method}, only {methods}. Open the page that leads here and use its form or link."
    )
    refused = refusal(request, 405, f"{text} Nothing was changed.")
    refused.headers["Allow"] = methods
    return refused


def _live_answer(view: Callable[..., HttpResponse], request: LiveRequest, *args, **kwargs) -> HttpResponse:
    """The view for the live feed, which sets the actor and handles the errors itself."""
    try:
        _require_access(request, kwargs.get("namespace"))
        return view(request, *args, **kwargs)
    except BadQuery as exc:
        raise InvalidArgument("page", "; ".join(f"{name}: {problem}" for name, problem in exc.problems)) from exc


def _require_access(request: HttpRequest, namespace: str | None) -> None:
    """Raise NotAuthorized for a user without a role, and EntityNotFound if the address or a parameter names a sandbox of somebody
    else, which only administrators may see."""
    request.actor.require(Right.BROWSE, namespace or "this site")
    parameters = (value for _, values in request.GET.lists() for value in values)
    named = filter(None, (namespace, *(value.partition("/")[0] for value in parameters)))
    sandbox_names.require_access(request.user, request.actor, named)


def refusal(
    request: HttpRequest,
    status: int,
    text: str,
    *,
    problems: list[tuple[str, str]] | None = None,
    error: BrokerError | None = None,
) -> HttpResponse:
    """Render an error as the requested page or fragment."""
    context = {"heading": _HEADINGS.get(status, "Refused"), "text": text, "problems": problems, "error": error, "status": status}
    return show(request, "refused", context, status=status)


def about(request: HttpRequest, entity: EntityRow) -> dict[str, Any]:
    """Context of every page about an entity."""
    last_namespace.remember(request, entity.address.namespace)
    return {
        "section": "entities",
        "may": May(request.actor.rights),
        "entity": entity,
        "address": entity.address,
        "clock": entity.clock,
    }


def show(
    request: HttpRequest, name: str, context: dict, *, fragment: str | None = None, status: int = 200, live: Live | None = None
) -> HttpResponse:
    """Render `name`.html; for htmx the fragment that it includes (default: `_name`.html in the same folder); for the live feed
    the fragments of `live`."""
    context = {"may": May(request.actor.rights), **context}
    if live and isinstance(request, LiveRequest):
        return LiveAnswer(request, live, context)
    folder, slash, page = name.rpartition("/")
    template = (fragment or f"{folder}{slash}_{page}") if wants_fragment(request) else name
    return render(request, f"explorer/{template}.html", context, status=status)


def show_form(
    request: HttpRequest,
    name: str,
    form: Form | None,
    *,
    done: Act = Act(),
    fields: Mapping[str, str] | None = None,
    **context: Any,
) -> HttpResponse:
    """Render a page with a form, complete also for htmx. An invalid form is a 400; an InvalidArgument is shown at its field.

    fields: form fields by argument name, where they differ.
    """
    error = done.error
    is_bad = form is not None and form.is_bound and bool(form.errors)
    if isinstance(error, InvalidArgument) and form is not None:
        field = (fields or {}).get(error.name, error.name)
        if field in form.fields:
            form.add_error(field, error.problem)
    status = done.status if error else 400 if is_bad else 200
    return show(request, name, {"section": "entities", "form": form, "error": error, **context}, fragment=name, status=status)


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx requests a fragment, and not a whole page, as when it restores history."""
    headers = request.headers
    return (
        headers.get("HX-Request") == "true"
        and headers.get("HX-Request-Type") != "full"
        and "HX-History-Restore-Request" not in headers
    )


def targets(request: HttpRequest, part: str) -> bool:
    """Whether htmx requests this part of the page, by its id."""
    return request.headers.get("HX-Target", "").rpartition("#")[2] == part


def draws(request: HttpRequest, fragment: str) -> bool:
    """Whether to render a part that htmx never requests: with the whole page, or for the live feed."""
    return request.wants(fragment) if isinstance(request, LiveRequest) else not wants_fragment(request)


def act(
    request: HttpRequest,
    action: str,
    address: EntityAddress | None,
    call: Callable[[], Any],
    *,
    target: str = "",
    says: Callable[[Any], str] = lambda result: "",
    undo: Callable[[Any], str] = lambda result: "",
) -> Act:
    """Carry out a user's action and audit it, whether it succeeds or not. says: (result) -> text for the notice and the audit.
    undo: (result) -> URL that the notice's Undo button posts to; empty: it cannot be undone."""
    try:
        result = call()
    except BrokerError as exc:
        audit.refused(request.actor, action, address, exc, target=target)
        return Act(error=exc)
    text = says(result)
    audit.done(request.actor, action, address, target=target, detail=text)
    if text:
        notify(request, text, undo=undo(result))
    return Act(result=result)


def shown_or_acted_on(request: HttpRequest, show_list: Callable[..., HttpResponse], act_on_it: Callable[[], Act]) -> HttpResponse:
    """A page with a list and bulk actions: GET shows it; POST acts and returns the updated list."""
    if request.method != "POST":
        return show_list()
    done = act_on_it()
    if wants_fragment(request):
        return show_list(done)
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(request.get_full_path())


def notify(request: HttpRequest, text: str, *, undo: str = "") -> None:
    """Show the text as a notice, on the next page if this one redirects. undo: URL that its Undo button posts to."""
    messages.success(request, text, extra_tags=f"{UNDO}{undo}" if undo else "")


def notify_error(request: HttpRequest, error: BrokerError) -> None:
    """Show the error as a notice on the page after a redirect."""
    text = str(error) if status_of(error) == 400 else f"{error} (tracking id {error.tracking_id})"
    messages.add_message(request, messages.ERROR, text, extra_tags="problem")


def site_url(request: HttpRequest) -> str:
    """The URL of the site, without a slash at its end, as this request reached it."""
    return request.build_absolute_uri("/").rstrip("/") + request.META.get("SCRIPT_NAME", "").rstrip("/")


def address_of(namespace: str, path: str, subqueue: str = "main") -> EntityAddress:
    return EntityAddress(namespace, path, SUBQUEUES.get(subqueue, SubQueue.MAIN))


def cleaned(form) -> dict:
    """The values of a valid query. Raises BadQuery with the invalid parameters."""
    if form.is_valid():
        return form.cleaned_data
    raise BadQuery([(name, _problem(form, name, errors)) for name, errors in form.errors.items()])


def _problem(form: Form, name: str, errors: list[str]) -> str:
    if any(error.code == "invalid_choice" for error in form.errors.as_data().get(name, ())):
        return f'There is no {name.replace("_", " ")} "{form.data.get(name)}".'
    return " ".join(errors)
