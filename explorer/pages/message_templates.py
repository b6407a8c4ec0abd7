"""Templates of messages: what is in a form that sends, saved under a name. Each change is audited.

The form's view calls `initial` to fill the form from a template (`?template=12`), `panel` for the form's controls, and `saving`
for a form posted by one of them: "ask" shows the fields to save it, "cancel" hides them, "new" and "changes" save.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_POST

from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Family, Right
from explorer.frames.family import installed, pages_of
from explorer.frames.forms.fields import with_unix_newlines
from explorer.frames.forms.typed import TypedRows
from explorer.frames.shell import Act, act, notify_error, page, show, wants_fragment
from explorer.models import MessageTemplate

from .saved import delete_saved, may_change, require_change

LARGEST = 128 * 1024  # bytes of a template's fields together
MOST_OFFERED = 200
ROWS = 100  # templates of a page of the list
_NOT_KEPT = ("template", "like", "of")
Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sender:
    """A form that sends: the entity or exchange that it is for. body: the name of its field with the body."""

    family: Family
    namespace: str
    path: str
    body: str = "body"

    @property
    def url(self) -> str:
        return pages_of(self.family).send_url(self.namespace, self.path)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.path}"


@dataclass(frozen=True, slots=True)
class Panel:
    """The controls of templates on a form.

    offered: the templates for it. has_any: whether the user sees one of the family. other_parameters: those of the query.
    loaded: the template that the form was filled from. may_overwrite: whether the user may change that. asks: whether to show the
    fields of a template, which are the rest.
    """

    offered: list[MessageTemplate]
    has_any: bool
    all_url: str
    other_parameters: Parameters
    loaded: MessageTemplate | None
    may_overwrite: bool
    asks: bool
    name: str
    is_shared: bool
    here_only: bool
    sender: Sender


class NameForm(forms.Form):
    template_name = forms.CharField(max_length=80)

    def clean_template_name(self) -> str:
        return " ".join(self.cleaned_data["template_name"].split())


def initial(request: HttpRequest, sender: Sender) -> dict[str, Any]:
    """Initial values of the form from the template that the query names; empty, with a notice, if it is not there."""
    text = request.GET.get("template", "")
    if not text:
        return {}
    template = _visible(request, sender.family, text)
    if template is None:
        messages.warning(
            request, f"The form is empty: template {text[:20]} was deleted, is not shared, or is for another family."
        )
        return {}
    if Right.SEE_BODIES in request.actor.rights or not template.fields.get(sender.body):
        return template.fields
    messages.warning(request, "The form has no body: you don't have permission to view message bodies.")
    return template.fields | {sender.body: ""}


def panel(request: HttpRequest, sender: Sender) -> Panel:
    """The controls, with what was typed into them. Without that, with the properties of the template that the form came from."""
    data = request.POST if request.method == "POST" else request.GET
    loaded = _visible(request, sender.family, data.get("template", ""))
    templates = MessageTemplate.objects.visible_to(request.user).filter(family=sender.family).defer("fields")
    typed = "template_name" in data
    offered = list(templates.offered_at(sender.namespace, sender.path).select_related("owner")[:MOST_OFFERED])
    return Panel(
        offered=offered,
        has_any=bool(offered) or templates.exists(),
        all_url=f"{reverse('explorer:message_templates')}?{_query(sender)}",
        other_parameters=tuple((name, value) for name, value in request.GET.items() if name not in _NOT_KEPT),
        loaded=loaded,
        may_overwrite=loaded is not None and may_change(request, loaded),
        asks=data.get("template_save") in ("ask", "new", "changes"),
        name=data["template_name"] if typed else loaded.name if loaded else "",
        is_shared="template_shared" in data if typed else loaded is not None and loaded.is_shared,
        here_only="template_here" in data if typed else loaded is not None and bool(loaded.path),
        sender=sender,
    )


def saving(
    request: HttpRequest, sender: Sender, form: forms.Form, show_form: Callable[[forms.Form, Act], HttpResponse]
) -> HttpResponse | None:
    """The answer to a form posted by one of the panel's buttons; None: it was posted by another. show_form: (form with what was
    typed, result) -> the page."""
    verb = request.POST.get("template_save", "")
    if not verb:
        return None
    if request.FILES:
        messages.warning(request, "Choose the file again before you send: a template has no file.")
    fields = _typed(form)
    done = Act() if verb in ("ask", "cancel") else _save(request, sender, fields, overwrites=verb == "changes")
    if done.result is None:
        return show_form(type(form)(initial=fields), done)
    url = f"{sender.url}?template={done.result.pk}"
    return HttpResponse(headers={"HX-Redirect": url}) if wants_fragment(request) else HttpResponseRedirect(url)


def _save(request: HttpRequest, sender: Sender, fields: dict[str, Any], *, overwrites: bool) -> Act:
    form = NameForm(request.POST)
    name = form.cleaned_data["template_name"] if form.is_valid() else ""
    for_entity = "template_here" in request.POST
    values = {
        "name": name,
        "is_shared": "template_shared" in request.POST,
        "namespace": sender.namespace if for_entity else "",
        "path": sender.path if for_entity else "",
        "fields": fields,
    }

    def call() -> MessageTemplate:
        request.actor.require(Right.SEND, str(sender))
        if not name:
            raise InvalidArgument("name", "Enter a name of at most 80 characters for the template.")
        _require_size(fields)
        if not overwrites:
            return _stored(MessageTemplate(owner=request.user, family=sender.family, **values))
        template = _visible(request, sender.family, request.POST.get("template", ""))
        if template is None:
            raise NotAllowed("The template was deleted meanwhile. Save this as a new template.")
        require_change(request, template, "template")
        for field, value in values.items():
            setattr(template, field, value)
        return _stored(template)

    return act(
        request, "save template", None, call, target=f"{name} ({sender if for_entity else pages_of(sender.family).title})",
        says=lambda saved: f'Saved the template "{saved.name}"{", shared with everybody" if saved.is_shared else ""}.',
    )  # fmt: skip


def _require_size(fields: dict[str, Any]) -> None:
    size = len(json.dumps(fields, ensure_ascii=False).encode())
    if size > LARGEST:
        problem = f"has {size // 1024:,} KB with all fields; the maximum is {LARGEST // 1024} KB. Shorten the body."
        raise InvalidArgument("template", problem)


def _stored(template: MessageTemplate) -> MessageTemplate:
    """Raises NotAllowed if its owner has another one of this name for the same entity."""
    try:
        with transaction.atomic():
            template.save()
    except IntegrityError as exc:
        where = f"for {template.namespace}/{template.path}" if template.path else "for all entities"
        problem = (
            f'There already is a template "{template.name}" {where}. Choose another name, or fill the form from it to change it.'
        )
        raise NotAllowed(problem) from exc
    return template


def _typed(form: forms.Form) -> dict[str, Any]:
    """What is in a posted form, as initial values: texts by field, and the rows of typed values."""
    texts = {
        name: with_unix_newlines(form.data.get(form.add_prefix(name), ""))
        for name, field in form.fields.items()
        if not isinstance(field, forms.FileField)
    }
    return texts | {name: [list(row) for row in rows.entered] for name, rows in vars(form).items() if isinstance(rows, TypedRows)}


def _visible(request: HttpRequest, family: Family, number: str) -> MessageTemplate | None:
    """The template with this number, if the user sees it and it is for this family."""
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    return MessageTemplate.objects.visible_to(request.user).filter(pk=int(number), family=family).first()


@page
@require_GET
def message_templates(request: HttpRequest) -> HttpResponse:
    """The templates that the user sees. With `family`, `namespace` and `path` those of the family; they fill the form of this
    entity, else that of their own."""
    request.actor.require(Right.BROWSE, "message templates")
    sender = _sender(request)
    families = [sender.family] if sender else [family_pages.family for family_pages in installed()]
    templates = (
        MessageTemplate.objects.visible_to(request.user).filter(family__in=families).select_related("owner").defer("fields")
    )
    paginated = Paginator(templates.order_by("name", "pk"), ROWS).get_page(request.GET.get("page"))
    lines = [
        (template, pages_of(template.family).title, _use_url(template, sender), may_change(request, template))
        for template in paginated
    ]
    context = {"section": "entities", "lines": lines, "page": paginated, "sender": sender, "query": _query(sender)}
    return show(request, "message_templates", context)


@page
@require_POST
def rename(request: HttpRequest, template_id: int) -> HttpResponse:
    form = NameForm(request.POST)
    template = MessageTemplate.objects.visible_to(request.user).filter(pk=template_id).first()
    if template is None:
        messages.info(request, "The template was already deleted.")
    elif not form.is_valid():
        notify_error(request, InvalidArgument("name", "Enter a name of at most 80 characters for the template."))
    else:
        _rename(request, template, form.cleaned_data["template_name"])
    return _back(request)


def _rename(request: HttpRequest, template: MessageTemplate, name: str) -> None:
    before = template.name

    def call() -> None:
        require_change(request, template, "template")
        template.name = name
        _stored(template)

    done = act(request, "rename template", None, call, target=before, says=lambda _: f'Renamed "{before}" to "{name}".')
    if done.error:
        notify_error(request, done.error)


@page
@require_POST
def delete(request: HttpRequest, template_id: int) -> HttpResponse:
    delete_saved(request, MessageTemplate.objects.visible_to(request.user).filter(pk=template_id).first(), "template")
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(f"{reverse('explorer:message_templates')}?{_query(_sender(request))}")


def _sender(request: HttpRequest) -> Sender | None:
    """The form that the user came from. Raises InvalidArgument for an unknown family."""
    namespace, path = request.GET.get("namespace", ""), request.GET.get("path", "")
    return Sender(pages_of(request.GET.get("family", "")).family, namespace, path) if namespace and path else None


def _query(sender: Sender | None) -> str:
    return urlencode({"family": sender.family, "namespace": sender.namespace, "path": sender.path}) if sender else ""


def _use_url(template: MessageTemplate, sender: Sender | None) -> str:
    """The URL of a form filled from it: of the entity that the user came from, else of its own; empty: it is for all."""
    if sender is None and template.path:
        sender = Sender(Family(template.family), template.namespace, template.path)
    return f"{sender.url}?template={template.pk}" if sender else ""
