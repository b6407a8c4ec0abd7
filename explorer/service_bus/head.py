"""The head of a queue's, topic's or subscription's page. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.common.durations import human
from broker_core.common.types import EntityAddress, EntityKind
from broker_core.reads import EntityRow
from broker_core.service_bus.rules.entity_settings import KEPT, SERVICE_NAMES
from explorer.charts.sparklines import Spark
from explorer.frames.filtering import group_url
from explorer.frames.head import OPERATOR, Glance, Head, Link, Tag, link, menu, operate_url, page_url, pause_parts
from explorer.frames.shell import May

_SOURCES = {"default": "default", "entity": "set on this {}", "namespace": "by the namespace's behaviour"}
_SHOWN = {
    "lock_duration": ("Lock", human),
    "max_delivery_count": ("Max deliveries", lambda count: f"{count:,}"),
    "default_message_time_to_live": ("Time-to-live", human),
    "dead_lettering_on_message_expiration": ("Expired messages", lambda is_on: "dead-lettered" if is_on else "dropped"),
    "requires_duplicate_detection": ("Duplicate detection", lambda is_on: "on" if is_on else "off"),
}


def head(entity: EntityRow, may: May, effective: Mapping[str, tuple[object, str]], spark: Spark | None) -> Head:
    glance = at_a_glance(effective, entity.kind)
    glance_names = {setting.name for setting in glance}
    others = [source for name, (_, source) in effective.items() if name != KEPT and SERVICE_NAMES[name] not in glance_names]
    is_topic, is_subscription = entity.kind == EntityKind.TOPIC, entity.kind == EntityKind.SUBSCRIPTION
    return Head(
        icon=str(entity.kind),
        name=entity.address.name,
        kind=f"Service Bus {entity.kind}",
        actions=_actions(entity, may),
        menu=_menu(entity, may),
        tags=_tags(entity),
        glance=glance,
        defaults=sum(source in ("default", "tier") for source in others),
        spark=spark,
        **pause_parts(entity, may, sends=not is_subscription, receives=not is_topic),
    )


def _actions(entity: EntityRow, may: May) -> list[Link]:
    address = entity.address
    word, target = ("Send to its topic", address.topic) if address.topic else ("Send", address)
    send = link(word, "send", page_url("send", target), may.send, OPERATOR, key="s")
    if not entity.holds_messages:
        return [send]
    return [send, link("Receive", "hand", page_url("receiver", address, "main"), may.receive, OPERATOR, key="r")]


def _menu(entity: EntityRow, may: May) -> list[Link]:
    address, at_work = entity.address, []
    if entity.kind != EntityKind.QUEUE:
        at_work.append(Link("Test rules", "rules", page_url("test_rules", address)))
    if entity.holds_messages:
        at_work += [
            link("Receive dead letters", "hand", page_url("receiver", address, "dead-letter"), may.receive, OPERATOR),
            Link("Groups and repair", "dead", group_url(address.dead_letter)),
            link("Release all locks…", "unlock", page_url("release_locks", address), may.operate, OPERATOR),
            link("Purge messages…", "trash", operate_url(address, "purge", "all"), may.operate, OPERATOR, is_danger=True),
        ]
    return menu(entity, may, at_work)


def _tags(entity: EntityRow) -> list[Tag]:
    tags = []
    if entity.requires_session:
        tags.append(Tag("sessions", "Messages are received by session", "?tab=sessions", "session"))
    if entity.hidden:
        tags.append(Tag("hidden", "Not listed unless hidden entities are included"))
    if entity.forward_to:
        target = EntityAddress(entity.address.namespace, entity.forward_to)
        is_loop = target in (entity.address, entity.address.topic)
        title = "All messages are forwarded" if is_loop else "All messages are forwarded; receive them there"
        tags.append(Tag(f"forwards to {entity.forward_to}", title, page_url("entity", target), "forward"))
    if entity.kind == EntityKind.SUBSCRIPTION and not entity.rules:
        tags.append(Tag("no rules", "Without rules, a subscription receives no messages", "?tab=rules", "warning", warns=True))
    return tags


def at_a_glance(effective: Mapping[str, tuple[object, str]], kind: EntityKind) -> list[Glance]:
    """The most important settings of this kind of entity."""
    return [
        Glance(SERVICE_NAMES[name], word, in_words(effective[name][0]), source_words(effective[name][1], kind),
               effective[name][1] != "entity")
        for name, (word, in_words) in _SHOWN.items()
        if name in effective
    ]  # fmt: skip


def source_words(source: str, kind: EntityKind) -> str:
    return _SOURCES.get(source, source).format(kind)
