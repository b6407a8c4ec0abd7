"""One queue: its state, its settings, its messages list by list, and what is done to several of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import broker, entities, reads
from broker_core.reads import EntityRow, Tab, TrafficPoint
from broker_core.semantics.durations import human
from broker_core.semantics.entity_settings import SERVICE_NAMES
from broker_core.semantics.errors import InvalidArgument
from broker_core.semantics.types import EntityAddress
from explorer.forms.queries import HISTORY, QueueQuery
from explorer.pages.shell import Act, act, address_of, cleaned, page, show, tell_refusal, wants_fragment

TRAFFIC_MINUTES = 30
MAX_SELECTED = reads.PAGE_ROWS

_TABS = (
    ("active", "active", "active"),
    ("locked", "locked", "locked"),
    ("scheduled", "scheduled", "scheduled"),
    ("deferred", "deferred", "deferred"),
    ("dead-letter", "dead letters", "dead"),
    ("transfer-dead-letter", "transfer dead letters", "dead"),
    (HISTORY, "history", "gone"),
)
BULK = {"dead-letter": "resubmit", "scheduled": "cancel"}
_SOURCES = {"default": "the default", "entity": "set on this queue"}
PURGEABLE = ("active", "deferred", "scheduled", "dead-letter")


@dataclass(frozen=True, slots=True)
class TabView:
    slug: str
    word: str
    hue: str
    count: int | None
    selected: bool


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Glance:
    """A setting in plain words. name: as Azure calls it."""

    name: str
    word: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Spark:
    """A small chart: points of two SVG polylines over `width` by 40, and the same in words."""

    sent: str
    completed: str
    width: int
    words: str


@page
@require_http_methods(["GET", "POST"])
def queue(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET shows; POST acts on the selected messages of the list, and answers with the list as it is then."""
    address = address_of(namespace, path)
    form = QueueQuery(request.GET)
    tab = cleaned(form)["tab"] or "active"
    if request.method != "POST":
        return _show(request, address, form, tab)
    done = _act_on_selected(request, address)
    if wants_fragment(request):
        return _show(request, address, form, tab, done)
    if done.error:
        tell_refusal(request, done.error)
    return HttpResponseRedirect(request.get_full_path())


def _show(request: HttpRequest, address: EntityAddress, form: QueueQuery, tab: str, done: Act = Act()) -> HttpResponse:
    entity = reads.entity(address, actor=request.actor)
    context = {
        "section": "overview",
        "entity": entity,
        "address": entity.address,
        "clock": entity.clock,
        "tabs": tab_views(entity, tab),
        "tab": tab,
        "form": form,
        "error": done.error,
        "bulk_action": BULK.get(tab),
        "purgeable": tab in PURGEABLE,
        **_listing(request, entity, form, tab),
    }
    if not wants_fragment(request):
        effective = entities.effective(address, actor=request.actor)
        context |= {
            "settings": settings_of(effective),
            "glance": at_a_glance(effective),
            "spark": spark(reads.traffic(address, TRAFFIC_MINUTES, actor=request.actor)),
        }
    return show(request, "queue", context, fragment="_messages", status=done.status)


def _listing(request: HttpRequest, entity: EntityRow, form: QueueQuery, tab: str) -> dict:
    values = form.cleaned_data
    cursor = values["cursor"] or None
    if tab == HISTORY:
        return {"events": reads.gone(entity.address, cursor=cursor, actor=request.actor), "filtered": False}
    narrowed = form.message_filter()
    found = reads.list_messages(
        entity.address, Tab(tab), filter=narrowed, cursor=cursor, newest_first=values["order"] != "oldest", actor=request.actor
    )
    return {"page": found, "filtered": bool(narrowed)}


def _act_on_selected(request: HttpRequest, address: EntityAddress) -> Act:
    action = request.POST.get("action", "")
    try:
        numbers = selected_numbers(request.POST.getlist("numbers"))
    except InvalidArgument as exc:
        return Act(error=exc)
    target = "messages " + ", ".join(map(str, numbers))
    if action == "resubmit":
        return act(
            request, "resubmit", address.dead_letter, lambda: broker.resubmit(address.dead_letter, numbers, actor=request.actor),
            target=target, says=lambda new: resubmitted(new, numbers),
        )  # fmt: skip
    if action == "cancel":
        return act(
            request, "cancel scheduled", address, lambda: broker.cancel_scheduled(address, numbers, actor=request.actor),
            target=target, says=lambda _: f"Cancelled {_messages(numbers)}; they will not be enqueued.",
        )  # fmt: skip
    return Act(error=InvalidArgument("action", f"{action!r} is not resubmit or cancel"))


def selected_numbers(given: Sequence[str]) -> list[int]:
    """The sequence numbers ticked in a list. Raises InvalidArgument for none, too many, or what is no number."""
    if not given:
        raise InvalidArgument("selection", "is empty; tick the messages first")
    if len(given) > MAX_SELECTED or not all(n.isascii() and n.isdigit() and len(n) <= 18 for n in given):
        raise InvalidArgument("selection", f"must be at most {MAX_SELECTED} sequence numbers")
    return sorted({int(n) for n in given})


def resubmitted(new_numbers: dict[int, int], asked: Sequence[int]) -> str:
    """The result of a resubmission in words; what was left is named (rule 15)."""
    if len(new_numbers) == 1:
        [(old, new)] = new_numbers.items()
        said = f"Resubmitted message {old}; it is message {new} now."
    elif new_numbers:
        said = f"Resubmitted {_messages(new_numbers)} from the dead-letter queue; they have new numbers at the end of the queue."
    else:
        said = "Nothing was resubmitted."
    left = [n for n in asked if n not in new_numbers]
    return said + (f" Left: {', '.join(map(str, left))}; a receiver holds them, or they are gone." if left else "")


def _messages(numbers) -> str:
    return f"{len(numbers):,} message{'' if len(numbers) == 1 else 's'}"


def tab_views(entity: EntityRow, selected: str) -> list[TabView]:
    """The lists with their counts; the transfer dead-letter queue only where it has something or is looked at."""
    counts = entity.counts
    numbers = {
        "active": counts.active, "locked": counts.locked, "scheduled": counts.scheduled, "deferred": counts.deferred,
        "dead-letter": counts.dead_letter, "transfer-dead-letter": counts.transfer_dead_letter, HISTORY: None,
    }  # fmt: skip
    shown = [t for t in _TABS if t[0] != "transfer-dead-letter" or counts.transfer_dead_letter or selected == t[0]]
    return [TabView(slug, word, hue, numbers[slug], slug == selected) for slug, word, hue in shown]


def settings_of(effective: Mapping[str, tuple[object, str]]) -> list[Setting]:
    """The settings by the names that Azure gives them, with where each comes from."""
    return [
        Setting(SERVICE_NAMES.get(name, name), value, _SOURCES.get(source, source)) for name, (value, source) in effective.items()
    ]


def at_a_glance(effective: Mapping[str, tuple[object, str]]) -> list[Glance]:
    """The four settings that decide what becomes of a message."""
    shown = {
        "lock_duration": ("Lock", human),
        "max_delivery_count": ("Deliveries", lambda count: f"{count:,} may fail"),
        "default_message_time_to_live": ("Time-to-live", human),
        "dead_lettering_on_message_expiration": ("Expired ones are", lambda kept: "dead-lettered" if kept else "dropped"),
    }
    return [
        Glance(SERVICE_NAMES[name], word, in_words(effective[name][0]), _SOURCES.get(effective[name][1], effective[name][1]))
        for name, (word, in_words) in shown.items()
    ]


def spark(points: Sequence[TrafficPoint], width: int = 600) -> Spark | None:
    """What came in and went out, as lines that share a scale; None where nothing passed."""
    highest = max((max(p.sent, p.completed) for p in points), default=0)
    if not highest:
        return None
    step = width / max(1, len(points) - 1)

    def line(values: Sequence[int]) -> str:
        return " ".join(f"{i * step:.1f},{38 - 36 * v / highest:.1f}" for i, v in enumerate(values))

    sent, completed = [p.sent for p in points], [p.completed for p in points]
    words = f"{sum(sent):,} sent and {sum(completed):,} completed in the last {TRAFFIC_MINUTES} minutes"
    return Spark(line(sent), line(completed), width, words)
