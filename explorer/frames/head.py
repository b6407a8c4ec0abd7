"""The head of an entity's page, which all families and kinds share: what it is, how it is doing, and what can be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.urls import reverse
from django.utils.http import urlencode

from broker_core.common.types import EntityAddress, EntityKind, EntityStatus
from broker_core.reads import EntityRow, OldestMessage, StoredState
from explorer.charts.sparklines import Spark

from . import questions
from .lists import TabView
from .shell import May

HEAD = "explorer/_entity_head.html"
LOOK_BACK = "ago=390"  # a minute (explorer/time_bar/time_scale.py)
OPERATOR, ADMINISTRATOR = "the operator role", "the administrator role"


@dataclass(frozen=True, slots=True)
class Glance:
    """A setting in words. name: its name in the family's documentation. is_default: whether nobody has set it."""

    name: str
    word: str
    value: str
    source: str
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """An action of the head or of its menu. why_not: the reason why it is disabled; empty: enabled. key: its shortcut.

    is_danger: it deletes something. in_dialog: what it leads to opens in a dialog.
    """

    word: str
    icon: str
    url: str
    why_not: str = ""
    key: str = ""
    is_danger: bool = False
    in_dialog: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A button that stops or resumes sending, receiving or both, by setting the status of the entity."""

    word: str
    icon: str
    status: EntityStatus


@dataclass(frozen=True, slots=True)
class Tag:
    """A property shown beside the name. url: where it is explained or changed; empty: nowhere."""

    word: str
    title: str = ""
    url: str = ""
    icon: str = ""
    warns: bool = False

    @property
    def css(self) -> str:
        """Its class: dead letters are a person's to decide, other warnings resolve themselves."""
        return "tag" if not self.warns else "tag dead" if self.icon == "dead" else "tag warn"


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest message of a state. word: the state, as the tab of its list says it. url: that list, the oldest message first,
    with this one open. meaning: what the time from or to `at` is."""

    word: str
    url: str
    at: datetime
    meaning: str
    is_ahead: bool


@dataclass(frozen=True, slots=True)
class Head:
    """kind: the family's words for what it is, "Service Bus queue". line: a sentence below the name, if it has no figures.
    actions: the first one is the main one. tags: what a person must know at once; features: beside the settings.

    glance: settings in force, as chips. defaults: how many settings more are at their defaults. receivers: the query of the tab
    that lists them. pauses: the buttons of the menu Pause; empty: it cannot be paused. why_no_pause: why this user cannot.
    """

    icon: str
    name: str
    kind: str
    actions: Sequence[Link] = ()
    menu: Sequence[Link] = ()
    tags: Sequence[Tag] = ()
    features: Sequence[Tag] = ()
    glance: Sequence[Glance] = ()
    defaults: int = 0
    spark: Spark | None = None
    receivers: str = "receivers"
    pauses: Sequence[Pause] = ()
    why_no_pause: str = ""
    pause_url: str = ""
    line: str = ""


def link(word: str, icon: str, url: str, may: bool, role: str, *, key: str = "", is_danger: bool = False) -> Link:
    """A link for those who may follow it. role: whoever has it may."""
    return Link(word, icon, url, "" if may else f"{word.rstrip('…')} requires {role}", key, is_danger)


def menu(entity: EntityRow, may: May, at_work: Sequence[Link], settings: Link | None = None) -> list[Link]:
    """The menu of an entity: settings first, then what its family does with the messages, then deletion."""
    address = entity.address
    delete = link(
        f"Delete {entity.kind}…", "trash", page_url("entity_delete", address), may.manage, ADMINISTRATOR, is_danger=True
    )
    imports = []
    if entity.kind != EntityKind.SUBSCRIPTION:
        imports.append(link("Import messages…", "send", page_url("messages_import", address), may.send, OPERATOR))
    return [
        settings or link("Settings", "gear", page_url("entity_settings", address), may.manage, ADMINISTRATOR, key=","),
        *at_work,
        *imports,
        Link("Look back", "back", f"{page_url('entity', address)}?{LOOK_BACK}"),
        Link("Map", "now", f"{reverse('explorer:map')}?{urlencode({'entity': str(address)})}"),
        Link("Insights", "chart", f"{reverse('explorer:insights')}?{urlencode({'entity': str(address)})}"),
        *_questions(entity),
        Link("Connect a client", "key", page_url("connect", address), in_dialog=True),
        Link("Show as code", "code", page_url("code", address), in_dialog=True),
        Link("Configuration history", "audit", page_url("entity_revisions", address)),
        replace(delete, why_not="Protected; remove the protection in the settings")
        if entity.protected and may.manage
        else delete,
    ]


def _questions(entity: EntityRow) -> list[Link]:
    """The questions about its history."""
    if entity.kind not in questions.ANALYSED:
        return []
    return [Link(title, "help", questions.question_about(entity, slug)) for slug, title in questions.TITLES.items()]


_MEANINGS = {
    StoredState.ACTIVE: "since enqueued",
    StoredState.LOCKED: "since received",
    StoredState.SCHEDULED: "until due",
    StoredState.DEFERRED: "since enqueued",
    StoredState.EXPIRED: "since expired",
    StoredState.DEAD_LETTER: "since dead-lettered",
    StoredState.TRANSFER_DEAD_LETTER: "since dead-lettered",
}


def oldest(messages: Iterable[OldestMessage], tabs: Sequence[TabView], *, order: str) -> list[Oldest]:
    """The oldest message of each state that an entity's tabs have. order: the parameter of lists with the oldest message first;
    empty: they always have."""
    shown = []
    for message in messages:
        tab = next((tab for tab in tabs if message.state in (tab.slug, tab.hue)), None)
        if tab:
            own = {"order": order} if order and tab.slug != StoredState.SCHEDULED else {}  # a list by due instants begins with it
            query = urlencode({"tab": tab.slug, **own, "m": message.sequence_number})
            is_ahead = message.state is StoredState.SCHEDULED
            shown.append(Oldest(tab.word, f"?{query}", message.at, _MEANINGS[message.state], is_ahead))
    return shown


def operate_url(address: EntityAddress, kind: str, tab: str) -> str:
    """The page that asks before an operation on all messages of a list."""
    return f"{page_url('operation_new', address)}?{urlencode({'kind': kind, 'tab': tab})}"


def page_url(name: str, address: EntityAddress, *before: str) -> str:
    return reverse(f"explorer:{name}", args=(*before, address.namespace, address.path))


_STATUS = {
    (True, True): EntityStatus.ACTIVE,
    (False, True): EntityStatus.SEND_DISABLED,
    (True, False): EntityStatus.RECEIVE_DISABLED,
    (False, False): EntityStatus.DISABLED,
}  # by (may send, may receive)


def pauses(status: EntityStatus, *, sends: bool = True, receives: bool = True) -> list[Pause]:
    """The buttons that change this status. sends, receives: whether the kind of entity does."""
    may_send, may_receive = status.may_send, status.may_receive
    buttons = []
    if sends:
        buttons.append(_pause("sending", may_send, _STATUS[not may_send, may_receive or not receives]))
    if receives:
        buttons.append(_pause("receiving", may_receive, _STATUS[may_send or not sends, not may_receive]))
    if sends and receives and may_send == may_receive:
        buttons.append(_pause("both", may_send, _STATUS[not may_send, not may_send]))
    return buttons


def _pause(activity: str, runs: bool, status: EntityStatus) -> Pause:
    return Pause(f"{'Pause' if runs else 'Resume'} {activity}", "pause" if runs else "play", status)


def pause_parts(entity: EntityRow, may: May, **kinds: bool) -> dict:
    """The part of a head that pauses the entity."""
    return {
        "pauses": pauses(entity.status, **kinds),
        "why_no_pause": "" if may.operate else f"Pausing requires {OPERATOR}",
        "pause_url": page_url("entity_pause", entity.address),
    }
