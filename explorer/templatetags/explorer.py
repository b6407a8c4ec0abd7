"""Template tags of the explorer: wrappers around the presenters, and the user's preferences."""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django import template
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.text import Truncator
from django.utils.timezone import now as real_now

from broker_core.common.durations import format_iso, human
from broker_core.common.explanations import Reason
from broker_core.common.types import Actor, EntityAddress, Family, HistoryLevel
from broker_core.operations import Kind, Operation
from broker_core.reads import EntityRow, FoundMessage, MessageRow
from explorer.bodies.invisible import visible
from explorer.demo import menu as demo
from explorer.frames import filtering, glossary, presenters, questions, shell, timeline
from explorer.frames.actors import ShownActor, shown_actor
from explorer.frames.columns import Columns
from explorer.frames.family import FamilyPages, NewEntity, installed, pages_of
from explorer.frames.values import status_of
from explorer.live.instants import epoch_ms
from explorer.pages import navigation as places
from explorer.people.preferences import Preferences

LONGEST_CELL = 60  # characters of a column that a person added

register = template.Library()
register.filter("human", human)
register.filter("filesize", presenters.filesize)
register.filter("rate", presenters.rate)
register.filter("byte_rate", presenters.byte_rate)
register.filter("per_minute", presenters.per_minute)
register.filter("age", presenters.age)
register.filter("absolute", presenters.absolute)
register.filter("badge", presenters.badge)
register.filter("is_of_input", lambda error: status_of(error) == 400)
register.filter("visible", visible)
register.filter("deadline", presenters.deadline)
register.filter("neglected", presenters.is_neglected)
register.filter("consuming", presenters.consuming)
register.filter("receiving", presenters.receiving)
register.filter("received_from", presenters.is_received_from)
register.filter("receiver_noun", lambda entity: pages_of(entity.family).texts.receiver)
register.filter("status_words", lambda entity: presenters.status_words(entity.status))
register.filter("shown_path", presenters.shown_path)
register.filter("release_title", presenters.release_title)
register.filter("tags", presenters.tags)
register.filter("effect_verb", presenters.effect_verb)
register.filter("family_pages", pages_of)


@register.simple_tag
@cache
def site_icon() -> str:
    """The site's icon as a data URI, which saves a request on the first page."""
    svg = Path(str(finders.find("explorer/favicon.svg"))).read_text()
    return f"data:image/svg+xml,{quote(svg.strip())}"


@register.simple_tag(takes_context=True)
def family_part(context, family: Family | None, name: str) -> str:
    """The family's part of a shared page; empty if it has none. family None: the first installed family."""
    template_name = (pages_of(family) if family else installed()[0]).parts.get(name)
    return context.template.engine.get_template(template_name).render(context) if template_name else ""


@register.simple_tag
def families() -> tuple[FamilyPages, ...]:
    return installed()


@register.simple_tag(takes_context=True)
def new_entities(context) -> list[tuple[NewEntity, str]]:
    """The forms of all families that create an entity, with their URLs. Links between a family's forms keep the query."""
    request = context["request"]
    query = f"?{request.GET.urlencode()}" if request.GET else ""
    forms = []
    for pages in installed():
        urls = [form.url() for form in pages.new_entities]
        suffix = query if len(urls) > 1 and request.path in urls else ""
        forms += [(form, url + suffix) for form, url in zip(pages.new_entities, urls, strict=True)]
    return forms


@register.filter
def rules_after(text: object) -> str:
    """The text with the rules that it cites, such as (SB-035), moved to its end."""
    plain, rules = presenters.without_rules(str(text))
    hint = "The rule and its test are listed in docs/rules.md"
    return format_html('{} <span class="small quiet" title="{}">rule {}</span>', plain, hint, rules) if rules else plain


@register.simple_tag
def figure(count: int, applies: bool = True) -> str:
    """A count in a table; empty if it does not apply to the entity."""
    if not applies:
        return ""
    return f"{count:,}" if count else mark_safe('<span class="zero">0</span>')


@register.filter
def slug_id(text: str) -> str:
    """A text as part of an element's id."""
    return re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", text)


@register.simple_tag
def icon(name: str) -> str:
    return mark_safe(f'<svg class="icon" aria-hidden="true"><use href="#i-{name}"/></svg>')


@register.simple_tag
def actor(of: ShownActor | str | None, *, link: bool = True) -> str:
    """An actor: its icon and name, which lead to its page. of: also as in events. link: False inside another link or a button."""
    it = of if isinstance(of, ShownActor) else shown_actor(of)
    if not link:
        return format_html('<span class="actor" title="{}">{}{}</span>', it.words, icon(it.icon), it.name)
    return format_html('<a class="actor" href="{}" title="{}">{}{}</a>', it.url, it.words, icon(it.icon), it.name)


@register.filter
def may_be_undone_by(operation: Operation, may: shell.May) -> bool:
    """Whether the operation can be undone, and by this user: restoring what was deleted is an administrator's task."""
    return operation.can_be_undone and (may.manage if operation.kind is Kind.DELETE else may.operate)


@register.filter
def is_actor(stored: str | None, me: Actor) -> bool:
    """Whether an actor, as events and locks store it, is this one."""
    return bool(stored) and stored in (str(me), me.holder_label)


@register.simple_tag
def question(slug: str, entity: EntityRow, **chosen: str) -> str:
    """The page of a question about an entity. chosen: receiver, reason, range."""
    return questions.question_about(entity, slug, **chosen)


@register.simple_tag
def state(badge: presenters.Badge) -> str:
    """A state badge: icon, colour and word."""
    return format_html(
        '<span class="state state-{}"><svg class="icon" aria-hidden="true"><use href="#i-{}"/></svg>{}</span>',
        badge.hue, badge.icon, badge.word,
    )  # fmt: skip


@register.simple_tag
def ago(at: datetime | None, now: datetime | None = None, *, in_words: bool = False) -> str:
    """The age of an instant, with the instant as its tooltip. now: the namespace's time, for instants of its clock.

    in_words: for a sentence: "12 s ago", or "now".
    """
    if not at:
        return mark_safe('<span class="quiet">none</span>')
    now = now or real_now()
    return format_html(
        '<time datetime="{}" data-since="{}" data-now="{}"{} title="{}">{}</time>',
        at.isoformat(),
        epoch_ms(at),
        epoch_ms(now),
        mark_safe(" data-in-words") if in_words else "",
        presenters.absolute(at),
        presenters.age_in_words(now - at) if in_words else presenters.age(now - at),
    )


@register.simple_tag
def instant(at: datetime | None) -> str:
    """The instant in full."""
    if not at:
        return mark_safe('<span class="quiet">unknown</span>')
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), presenters.absolute(at))


@register.simple_tag
def countdown(at: datetime, now: datetime) -> str:
    """The time left until `at`, updated by live.js. Screen readers do not announce each second (role timer is silent)."""
    return format_html(
        '<time class="countdown" role="timer" datetime="{}" data-deadline="{}" title="{}">{}</time>',
        at.isoformat(), epoch_ms(at), presenters.absolute(at), presenters.clock_text(at - now),
    )  # fmt: skip


@register.simple_tag
def reason_text(reason: Reason, at: datetime) -> str:
    """A reason of an explanation, and what would change it. The time left, which its text says as of `at`, is one countdown."""
    plain, change = without_rules(reason.text), ""
    if reason.change:
        change = format_html(' <span class="quiet">{}</span>', without_rules(reason.change))
    before, time_left, after = plain.partition(human(reason.ends_at - at)) if reason.ends_at else (plain, "", "")
    if not time_left or reason.ends_at is None:
        return format_html("{}{}", plain, change)
    return format_html("{}{}{}{}", before, countdown(reason.ends_at, at), after, change)


@register.filter
def breakable(path: str) -> str:
    """A path that may be broken after its slashes, and nowhere else."""
    return format_html_join(mark_safe("/<wbr>"), "{}", ((part,) for part in path.split("/")))


@register.filter
def without_rules(text: object) -> str:
    """The text without the rules that it cites, such as (SB-035)."""
    return presenters.without_rules(str(text))[0]


@register.simple_tag
def ring(since: datetime, until: datetime, now: datetime, icon_name: str = "") -> str:
    """The share of a time that is left, as a ring around an icon, updated by live.js. The countdown beside it says the same."""
    length = (until - since).total_seconds()
    left = min(1.0, max(0.0, (until - now).total_seconds() / length)) if length > 0 else 0.0
    return format_html(
        '<span class="ring-place"><svg class="ring" viewBox="0 0 32 32" aria-hidden="true"><circle cx="16" cy="16" r="14"/>'
        '<circle class="left" cx="16" cy="16" r="14" pathLength="100" data-ring-from="{}" data-ring-to="{}" '
        'stroke-dasharray="{} 100"/></svg>{}</span>',
        epoch_ms(since), epoch_ms(until), f"{left * 100:.1f}", icon(icon_name) if icon_name else "",
    )  # fmt: skip


@register.simple_tag
def time_bar_words(bar) -> str:
    """The picture of a time bar in a sentence."""
    if bar.next is None:
        return "An hour back and an hour ahead: no timed change is pending."
    more = f"{presenters.plural(len(bar.coming), 'change')} to come; the first: {bar.next.words}"
    return f"An hour back and an hour ahead: {more}."


@register.simple_tag(takes_context=True)
def message_pane(context) -> str:
    """The open message beside a list, from its own context only."""
    request = context["request"]
    shared = {**context["pane"], "list_url": f"?{_list_query(request)}", "csrf_token": context.get("csrf_token")}
    return render_to_string("explorer/_pane_content.html", shared, request)


@register.simple_tag(takes_context=True)
def list_query(context, m: int | None = None) -> str:
    """The query of the list that a message was opened from, for links to messages beside it. m: opens this one in the list."""
    query = _list_query(context["request"], m)
    return f"?{query}" if query else ""


def _list_query(request, m: int | None = None) -> str:
    query = request.GET.copy()
    for name in ("m", "body"):
        query.pop(name, None)
    if m is not None:
        query["m"] = str(m)
    return query.urlencode()


@register.filter
def of_key(values, key):
    """The value of a mapping for a key that is a variable."""
    return values.get(key, "")


@register.simple_tag
def server_clock(clock=None) -> str:
    """The clock of the page's deadlines: the namespace's if the page shows one, else the server's."""
    now, rate, read = (clock.now, clock.rate, epoch_ms(clock.real_now)) if clock else (real_now(), 1, 1)
    return format_html('<meta name="vitrine-clock" content="{}" data-rate="{}" data-read="{}">', epoch_ms(now), rate, read)


@register.simple_tag
def address_url(page: str, address: EntityAddress, *rest) -> str:
    """The URL of a page about an entity, one of its lists, or a message in it."""
    return reverse(f"explorer:{page}", args=(address.namespace, address.path, *rest))


@register.simple_tag
def group_url(address: EntityAddress, subqueue: str, text: str = "") -> str:
    """The workbench of the messages that a filter finds in a list of failed messages. subqueue: the list."""
    return filtering.group_url(EntityAddress(address.namespace, address.path, presenters.SUBQUEUES[subqueue]), text)


@register.simple_tag
def message_url(address: EntityAddress, sequence_number: int, page: str = "message") -> str:
    """The URL of a message. It is the same in the dead-letter queue, since numbers are unique in the entity."""
    return reverse(f"explorer:{page}", args=(address.namespace, address.path, sequence_number))


@register.simple_tag
def message_code_url(address: EntityAddress, sequence_number: int) -> str:
    """The URL of what can be done with a message, as code."""
    return f"{reverse('explorer:code', args=(address.namespace, address.path))}?number={sequence_number}"


@register.simple_tag(takes_context=True)
def message_edit_url(context, address: EntityAddress, sequence_number: int) -> str:
    """The URL of the form that edits a message. From a pane it returns to the list."""
    url = message_url(address, sequence_number, "message_edit")
    if not context.get("in_pane"):
        return url
    back = reverse("explorer:entity", args=(address.namespace, address.path)) + list_query(context, sequence_number)
    return f"{url}?{urlencode({'back': back})}"


@register.simple_tag
def found_url(message: FoundMessage) -> str:
    """The URL of a message that a search found. `of` names its entity if that was deleted: another one may have its name."""
    url = message_url(message.address, message.sequence_number)
    return f"{url}?of={message.entity_id}" if message.deleted_at else url


@register.simple_tag(takes_context=True)
def with_query(context, **changes) -> str:
    """This page's query with some parameters set, or removed if None, so that filters, sort order and tab are kept."""
    query = context["request"].GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = value
    return f"?{query.urlencode()}" if query else context["request"].path


@register.simple_tag(takes_context=True)
def preferences(context) -> Preferences:
    request = context.get("request")
    return Preferences.of(request.COOKIES) if request else Preferences()


@register.simple_tag
def navigation() -> list[list[places.Place]]:
    """The places of the navigation, in groups."""
    return places.places()


@register.simple_tag(takes_context=True)
def namespace_switch(context) -> places.Switch | None:
    """The namespaces to choose from; None for a person who may see none."""
    return places.switch(context["request"], _namespace(context))


def _namespace(context) -> str | None:
    """The one that the page is about; None: all."""
    return context.get("namespace") or getattr(context.get("address"), "namespace", None)


@register.simple_tag(takes_context=True)
def demo_menu(context) -> demo.DemoMenu | None:
    """The demo's menu, on pages about messages of its namespaces, or of all."""
    is_about_messages = context.get("section") in ("now", "entities", "messages", "dead_letters", "locks", "insights")
    return demo.demo_menu(_namespace(context)) if is_about_messages else None


@register.simple_tag
def environment() -> places.Environment | None:
    return places.environment()


@register.simple_tag(takes_context=True)
def nav_count(context, place: places.Place) -> str:
    """The number beside a place; an empty element for 0, which a later frame fills. Of the page's own place it is the page's
    number, `own_count`: the others are some seconds old."""
    is_own = context.get("section") == place.name and context.get("own_count") is not None
    count = context["own_count"] if is_own else places.counts(context["request"]).get(place.count)
    return format_html('<span class="nav-count" id="n-{}">{}</span>', place.name, f"{count:,}" if count else "")


@register.filter
def focused(field):
    """The field, which has the focus when the page opens; not if the form comes back, whose problem is announced then."""
    return field if field.form.is_bound else field.as_widget(attrs={"autofocus": True})


@register.filter
def initials(name: str) -> str:
    """Two letters for a name: vera -> VE, Vera.Lind -> VL."""
    parts = re.findall(r"\w+", name)
    return ("".join(part[0] for part in parts[:2]) if len(parts) > 1 else name[:2]).upper()


@register.filter
def undo_url(message) -> str:
    """Where the Undo button of a notice posts to; empty: it has none."""
    tags = message.extra_tags or ""
    return tags.removeprefix(shell.UNDO) if tags.startswith(shell.UNDO) else ""


@register.inclusion_tag("explorer/_term.html")
def term(word: str, text: str = "", place: str = "") -> dict[str, Any]:
    """A word of the glossary that opens its explanation. text: how it is written here. place: makes the id of its explanation
    unique, where a page has the same term twice."""
    it = glossary.BY_WORD[word]
    return {"it": it, "text": text or word, "id": "-".join(filter(None, (it.sheet, place)))}


@register.simple_tag
def label(text: str) -> str:
    """A label. One that names a term opens the term's explanation, which `term_sheets` puts on the page."""
    it = glossary.find(text)
    return _labelled(text, it, text) if it else text


@register.simple_tag
def term_label(text: str, word: str) -> str:
    """A label that opens the explanation of this term, which `term_sheets` puts on the page."""
    return _labelled(text, glossary.BY_WORD[word], word)


def _labelled(text: str, it: glossary.Term, word: str) -> str:
    button = '<button class="term" type="button" popovertarget="{}" aria-label="What is {}?"></button>'
    return format_html('<span class="termed">{}' + button + "</span>", text, it.sheet, word)


@register.inclusion_tag("explorer/_term_mark.html")
def term_mark(field) -> dict[str, Any]:
    """Beside a field's label: opens the explanation of the term that the label names, if it names one."""
    return {"it": glossary.find(field.label), "id": f"{field.auto_id}_term"}


@register.inclusion_tag("explorer/_term_sheets.html")
def term_sheets(*words: str) -> dict[str, Any]:
    """The explanations that labels of the page open; without words, those of the lists of messages. Outside of what is live, so
    that updates stay small."""
    return {"terms": [glossary.BY_WORD[word] for word in words or glossary.LISTS]}


@register.simple_tag
def version() -> str:
    from explorer import __version__

    return __version__


@register.simple_tag
def role_of(user) -> str:
    from explorer.people.roles import role_name

    return role_name(user)


@register.filter
def plural(count, words: str) -> str:
    """{{ 3|plural:"message,messages" }} -> 3 messages, with thousands separated."""
    return presenters.plural(count, *words.split(",", 1))


@register.filter
def thousands(count) -> str:
    return f"{count:,}"


@register.simple_tag
def setting_value(value) -> str:
    """A setting for display: durations in words and in ISO 8601, booleans as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return format_html('{} <span class="quiet mono">{}</span>', human(value), format_iso(value))
    if isinstance(value, HistoryLevel):
        return value.name.lower()
    if value is None:
        return "never"
    return f"{value:,}" if isinstance(value, int) else str(value) or "–"


@register.simple_tag
def event_words(kind, family: Family | None = None, reason: str | None = None) -> timeline.Words:
    return timeline.words(kind, family, reason)


@register.simple_tag
def lived(begin: datetime, end: datetime) -> str:
    return human(max(end - begin, timedelta(0)))


@register.filter
def milliseconds(count: object) -> str:
    """A number of milliseconds as a duration: "19 s"; a text that is no number as it is."""
    text = str(count)
    return human(timedelta(milliseconds=int(text))) if text.isascii() and text.isdigit() and len(text) < 15 else text


@register.filter
def quoted(text: str) -> str:
    return quote(text, safe="")


@register.filter
def seconds(delta: timedelta) -> str:
    """A duration in seconds with its fraction: 0.042 s."""
    return f"{delta.total_seconds():.3f} s" if delta < timedelta(seconds=10) else human(delta)


@register.filter
def prefix_of(address: EntityAddress, namespace: Any) -> str:
    """What stands before an entity's own name in a list: its namespace, unless the list is of one, and its topic."""
    return f"{'' if namespace else f'{address.namespace}/'}{f'{address.topic.path}/' if address.topic else ''}"


@register.filter
def quoted_address(address: EntityAddress) -> str:
    """An address as a parameter of a link."""
    return quote(str(address), safe="/")


@register.filter
def length_of_time(number: int) -> str:
    """A number of seconds in words."""
    return human(timedelta(seconds=number))


@register.simple_tag
def added_cells(row: MessageRow, columns: Columns) -> str:
    """The cells of the columns that a person added to a list of messages."""
    texts = [Truncator(stored_text(value)).chars(LONGEST_CELL) for value in columns.values.get(row.sequence_number, ())]
    return format_html_join(
        "", '<td class="added" data-label="{}">{}</td>', zip((column.title for column in columns.chosen), texts, strict=False)
    )


@register.filter
def stored_text(content: Any) -> Any:
    """The text of a stored property or header: of a null "null"; a NUL, for which it is base64, is shown as a symbol."""
    if content is None:
        return "null"
    if not (isinstance(content, list) and len(content) == 1 and isinstance(content[0], str)):
        return content
    try:
        return base64.b64decode(content[0]).decode().replace("\x00", "␀")
    except UnicodeDecodeError:
        return content[0]
