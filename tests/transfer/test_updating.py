"""An import into a namespace that exists: what differs is changed, what is missing is created, nothing is deleted."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core import queue_storage as storage
from broker_core.common.errors import InvalidArgument, NotAllowed, NotAuthorized, PreviewOutdated
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, HistoryLevel, Right, Tier
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging, Metrics
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.transfer.exporting import export
from broker_core.transfer.updating import Result, apply_import, preview_import

MINUTE = timedelta(minutes=1)
POLICIES = (AccessPolicy("readers", None, "2030-01-01", "rp"), AccessPolicy("empty"))
VOLATILE = ("created_at", "updated_at", "next_number", "last_activity_at", "last_receive_at")


def exported(*names, **options):
    lines = []
    export(list(names), lines.append, with_messages=False, **options)
    return lines


def configuration(namespace):
    """What an export says, without when, in any order."""
    document = [next(iter(json.loads(line).items())) for line in exported(namespace)[1:-1]]
    return sorted(
        json.dumps([kind, {n: v for n, v in values.items() if n not in VOLATILE}], sort_keys=True) for kind, values in document
    )


def changed_items(preview, result):
    return [str(change.item) for namespace in preview.namespaces for change in namespace.changes if change.result is result]


def edited(lines, **where_and_what):
    """The file with fields of its first line of a kind replaced: entity={"settings": {...}}."""
    [(kind, fields)] = where_and_what.items()
    at = next(i for i, line in enumerate(lines) if kind in json.loads(line))
    content = json.loads(lines[at])[kind]
    for name, value in fields.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    return [*lines[:at], json.dumps({kind: content}), *lines[at + 1 :]]


@pytest.fixture
def shop(namespace):
    topic = EntityAddress(namespace, "news")
    entities.create_queue(EntityAddress(namespace, "orders"), requires_duplicate_detection=True, lock_duration=MINUTE)
    entities.create_queue(
        EntityAddress(namespace, "audit"), user_metadata="kept as it is", kept_properties={"EnablePartitioning": True}
    )
    entities.create_topic(topic, kept_properties={"EnableBatchedOperations": False})
    entities.create_subscription(topic.subscription("all"), rule=Rule("big", compile_filter("size > 5")), forward_to="orders")
    shared_access.create_policy(topic, "reader", listen=True)
    return namespace


@pytest.fixture
def jobs(account):
    storage.create_queue(EntityAddress(account, "mail"), metadata={"owner": "me"}, max_dequeue_count=3)
    storage.create_queue(EntityAddress(account, "print"))
    return account


@pytest.fixture
def kettles(vhost):
    rabbitmq.set_policy(vhost, Policy("short", "^k", {"message-ttl": 60_000}, "queues", 1))
    rabbitmq.declare_exchange(vhost, "steam", "topic", arguments={"alternate-exchange": "amq.fanout"})
    rabbitmq.declare_queue(EntityAddress(vhost, "kettle"), arguments={"x-max-length": 9})
    rabbitmq.bind_queue(vhost, "kettle", "steam", "hot.#")
    rabbitmq.bind_exchange(vhost, "amq.topic", "steam", "cold.*", {"x": 1})
    return vhost


@pytest.fixture(params=["shop", "jobs", "kettles"])
def place(request):
    return request.getfixturevalue(request.param)


def test_an_export_imported_into_its_namespace_changes_nothing(place):
    before = exported(place)
    preview = preview_import(before)
    assert preview.is_empty
    assert {change.result for change in preview.namespaces[0].changes} == {Result.UNCHANGED}
    apply_import(before, token=preview.token)
    assert exported(place)[1:] == before[1:]


def _orders(shop):
    return EntityAddress(shop, "orders")


def _all(shop):
    return EntityAddress(shop, "news").subscription("all")


SERVICE_BUS = {
    "durations": lambda ns: entities.update_queue(_orders(ns), lock_duration=5 * MINUTE, default_message_time_to_live=MINUTE),
    "never": lambda ns: entities.update_queue(EntityAddress(ns, "audit"), auto_delete_on_idle=10 * MINUTE, user_metadata=None),
    "flags": lambda ns: entities.update_queue(
        _orders(ns), dead_lettering_on_message_expiration=True, hidden=True, history_level="off", expiry_mode="on_activity"
    ),
    "kept properties": lambda ns: entities.update_queue(
        EntityAddress(ns, "audit"), kept_properties={"EnablePartitioning": True, "SupportOrdering": True}
    ),
    "default properties": lambda ns: entities.update_topic(EntityAddress(ns, "news"), kept_properties={}),
    "status": lambda ns: entities.set_status(_orders(ns), EntityStatus.SEND_DISABLED),
    "a forward": lambda ns: entities.update_subscription(_all(ns), forward_to="audit"),
    "a forward to itself": lambda ns: entities.update_queue(EntityAddress(ns, "audit"), forward_to="audit"),
    "a forward to its topic": lambda ns: entities.update_subscription(_all(ns), forward_to="news"),
    "no forward": lambda ns: entities.update_subscription(_all(ns), forward_to=None),
    "a rule": lambda ns: entities.update_rule(_all(ns), Rule("big", compile_filter("size > 6"), compile_action("REMOVE size"))),
    "no rule": lambda ns: entities.delete_rule(_all(ns), "big"),
    "rights": lambda ns: shared_access.update_policy(EntityAddress(ns, "news"), "reader", send=True, listen=False, manage=False),
    "no policy": lambda ns: shared_access.delete_policy(EntityAddress(ns, "news"), "reader"),
    "no queue": lambda ns: entities.delete_queue(_orders(ns)),
    "no topic": lambda ns: entities.delete_topic(EntityAddress(ns, "news")),
    "description": lambda ns: namespaces.update_namespace(ns, description="changed"),
    "tier": lambda ns: namespaces.update_namespace(ns, tier=Tier.PREMIUM),
}
QUEUE_STORAGE = {
    "options": lambda ns: storage.update_queue(
        EntityAddress(ns, "mail"), max_dequeue_count=None, poison_queue="bad", expiry_grace=MINUTE, strict_visibility=True
    ),
    "metadata": lambda ns: storage.set_metadata(EntityAddress(ns, "mail"), {"other": "x"}),
    "history": lambda ns: storage.update_queue(EntityAddress(ns, "print"), history_level=HistoryLevel.OFF),
    "access policies": lambda ns: storage.update_queue(EntityAddress(ns, "mail"), access_policies=POLICIES),
    "service properties": lambda ns: accounts.set_service_properties(
        ns, cors=(CorsRule(("*",), ("GET",)),), logging=Logging(read=True), hour_metrics=Metrics(enabled=True)
    ),
    "no queue": lambda ns: storage.delete_queue(EntityAddress(ns, "mail")),
    "no other queue": lambda ns: storage.delete_queue(EntityAddress(ns, "print")),
}
RABBITMQ = {
    "a policy": lambda ns: rabbitmq.set_policy(ns, Policy("short", "^x", {"max-length": 5}, "all", 2)),
    "no policy": lambda ns: rabbitmq.delete_policy(ns, "short"),
    "options": lambda ns: rabbitmq.set_queue_option(EntityAddress(ns, "kettle"), retroactive_ttl=False, exact_expiry=True),
    "no binding": lambda ns: rabbitmq.unbind_queue(ns, "kettle", "steam", "hot.#"),
    "no binding with arguments": lambda ns: rabbitmq.unbind_exchange(ns, "amq.topic", "steam", "cold.*", {"x": 1}),
    "no queue": lambda ns: rabbitmq.delete_queue(EntityAddress(ns, "kettle")),
    "no exchange": lambda ns: rabbitmq.delete_exchange(ns, "steam"),
}
CHANGES = [
    pytest.param(fixture, change, id=f"{fixture}: {name}")
    for fixture, changes in (("shop", SERVICE_BUS), ("jobs", QUEUE_STORAGE), ("kettles", RABBITMQ))
    for name, change in changes.items()
]


@pytest.mark.parametrize(("fixture", "change"), CHANGES)
def test_an_import_restores_the_exported_configuration(request, fixture, change):
    place = request.getfixturevalue(fixture)
    before, file = configuration(place), exported(place)
    change(place)
    changed = configuration(place)
    assert changed != before
    preview = preview_import(file)
    assert not preview.is_empty
    assert configuration(place) == changed, "a preview changes nothing"
    apply_import(file, token=preview.token)
    assert configuration(place) == before
    assert preview_import(file).is_empty


@pytest.mark.parametrize(
    ("fixture", "changes"),
    [("shop", SERVICE_BUS), ("jobs", QUEUE_STORAGE), ("kettles", RABBITMQ)],
    ids=["shop", "jobs", "kettles"],
)
def test_several_changes_are_restored_together(request, fixture, changes):
    place = request.getfixturevalue(fixture)
    before, file = configuration(place), exported(place)
    for name, change in changes.items():
        if not name.startswith("no ") or name in ("no policy", "no binding", "no other queue"):
            change(place)
    apply_import(file)
    assert configuration(place) == before


SESSIONS = {"requires_session": True}
SHORTER = {"arguments": {"x-max-length": ["signedint", "5"]}}


def test_settings_are_previewed_with_old_and_new_value_and_effects(shop):
    queue = EntityAddress(shop, "audit")
    entities.update_queue(queue, default_message_time_to_live=MINUTE, lock_duration=2 * MINUTE)
    file = exported(shop)
    entities.update_queue(queue, default_message_time_to_live=None, lock_duration=MINUTE)
    service_bus.send(queue, [Message(b"old")])
    namespaces.step_clock(shop, 5 * MINUTE)
    [change] = [change for change in preview_import(file).namespaces[0].changes if change.result is Result.CHANGED]
    assert (change.item.kind, change.item.path) == ("queue", "audit")
    assert change.settings == {
        "default_message_time_to_live": (None, MINUTE),
        "lock_duration": (MINUTE, 2 * MINUTE),
    }
    assert sum(effect.count for effect in change.effects if effect.what == "expired") == 1
    assert reads.counts(queue).active == 1


def test_kept_properties_are_previewed_one_by_one_whatever_is_left_out_of_the_file(shop):
    """SB-940."""
    file = exported(shop)
    for kept in ({"EnablePartitioning": True}, {"EnablePartitioning": True, "SupportOrdering": False, "EnableExpress": False}):
        assert preview_import(edited(file, entity={"settings": {"kept_properties": kept}})).is_empty
    changed = edited(file, entity={"settings": {"kept_properties": {"EnablePartitioning": True, "SupportOrdering": True}}})
    [change] = [change for change in preview_import(changed).namespaces[0].changes if change.result is Result.CHANGED]
    assert (change.item.path, change.settings, change.effects) == ("audit", {"SupportOrdering": (False, True)}, ())
    apply_import(changed)
    assert entities.get_queue(EntityAddress(shop, "audit")).settings.kept_properties == {
        "EnablePartitioning": True, "SupportOrdering": True,
    }  # fmt: skip


def test_the_effects_of_a_policy_are_previewed(kettles):
    file = edited(exported(kettles), rabbitmq_policy={"definition": {"max-length": 1}})
    queue = EntityAddress(kettles, "kettle")
    rabbitmq.publish(kettles, [rabbitmq.Publication(b"x", routing_key="kettle")] * 3)
    [change] = [change for change in preview_import(file).namespaces[0].changes if change.result is Result.CHANGED]
    assert change.settings == {"definition max-length": (None, 1)}
    assert {(str(effect.what), effect.count) for effect in change.effects} == {("too many", 2), ("dropped", 2)}
    assert reads.counts(queue).active == 3
    apply_import(file)
    assert rabbitmq.get_queue(queue).effective["max_length"] == 1


@pytest.mark.parametrize(
    ("fixture", "edit", "says"),
    [
        (
            "shop",
            {"entity": {"settings": {"requires_session": True}}},
            "RequiresSession of queue 'audit' is false and would be true",
        ),
        ("shop", {"entity": {"kind": "topic"}}, "is not a setting of a topic"),
        (
            "shop",
            {"entity": {"settings": {"kept_properties": {}}}},
            "EnablePartitioning of queue 'audit' is true and would be false",
        ),
        ("shop", {"entity": {"settings": {"kept_properties": {"EnableExpress": 1}}}}, "EnableExpress: 1 must be true or false"),
        ("shop", {"entity": {"settings": {"max_delivery_count": 0}}}, "out of range"),
        ("shop", {"namespace": {"family": "queue_storage"}}, "is of the family Service Bus"),
        ("shop", {"rule": {"filter": {"expression": "size >"}}}, ": rule"),
        ("jobs", {"entity": {"settings": {"hidden": True}}}, "hidden of queue 'mail' is false and would be true"),
        ("jobs", {"entity": {"options": {"expiry_grace": -1}}}, "expiry_grace"),
        (
            "kettles",
            {"entity": {"options": SHORTER}},
            "argument x-max-length of queue 'kettle' is 9",
        ),
        ("kettles", {"entity": {"options": {"durable": False}}}, "durable of queue 'kettle' is true and would be false"),
        ("kettles", {"exchange": {"internal": True}}, "internal of exchange 'amq.direct' is false and would be true"),
        ("kettles", {"rabbitmq_policy": {"pattern": "("}}, "pattern"),
        ("kettles", {"binding": {"destination": "missing"}}, "missing"),
    ],
)
def test_a_refused_import_changes_nothing(request, fixture, edit, says):
    place = request.getfixturevalue(fixture)
    extra = {"shop": SERVICE_BUS["durations"], "jobs": QUEUE_STORAGE["metadata"], "kettles": RABBITMQ["options"]}[fixture]
    file = edited(exported(place), **edit)
    extra(place)  # so that the import would change something else
    before = configuration(place)
    for use_case in (preview_import, apply_import):
        with pytest.raises((NotAllowed, InvalidArgument), match=".") as refused:
            use_case(file)
        assert says in str(refused.value)
    assert configuration(place) == before


def test_objects_missing_from_the_file_are_kept_and_listed(shop, kettles):
    file = exported(shop, kettles)
    entities.create_queue(EntityAddress(shop, "newer"))
    entities.create_rule(_all(shop), Rule("newer", compile_filter("a = 1")))
    rabbitmq.bind_queue(kettles, "kettle", "amq.topic", "new")
    preview = preview_import(file)
    assert preview.is_empty
    kept = {"queue 'newer'", "rule 'newer' of 'news/Subscriptions/all'", "binding 'amq.topic → queue kettle, key 'new''"}
    assert set(changed_items(preview, Result.KEPT)) == kept
    before = configuration(shop) + configuration(kettles)
    apply_import(file)
    assert configuration(shop) + configuration(kettles) == before


def test_a_missing_namespace_is_created_and_an_existing_namespace_is_updated_together(shop, jobs):
    file = exported(shop, jobs)
    before = configuration(shop), configuration(jobs)
    storage.delete_account(jobs)
    SERVICE_BUS["durations"](shop)
    preview = preview_import(file)
    assert {namespace.name: namespace.is_new for namespace in preview.namespaces} == {shop: False, jobs: True}
    assert {"queue 'mail'", "queue 'print'"} <= set(changed_items(preview, Result.CREATED))
    apply_import(file, token=preview.token)
    assert (configuration(shop), configuration(jobs)) == before


def test_settings_that_changed_since_the_preview_are_not_overwritten(shop):
    file = exported(shop)
    SERVICE_BUS["durations"](shop)
    preview = preview_import(file)
    SERVICE_BUS["status"](shop)
    before = configuration(shop)
    with pytest.raises(PreviewOutdated, match="settings have changed"):
        apply_import(file, token=preview.token)
    assert configuration(shop) == before
    apply_import(file, token=preview_import(file).token)


def test_new_messages_do_not_outdate_a_preview(shop):
    file = exported(shop)
    SERVICE_BUS["durations"](shop)
    preview = preview_import(file)
    service_bus.send(_orders(shop), [Message(b"x")])
    apply_import(file, token=preview.token)


def test_messages_are_not_imported_into_a_namespace_that_exists(shop):
    service_bus.send(_orders(shop), [Message(b"x")])
    lines = []
    export([shop], lines.append)
    with pytest.raises(InvalidArgument, match="exists; only its configuration can be imported"):
        preview_import(lines)


def test_keys_and_the_clock_of_a_namespace_are_kept(shop):
    file = exported(shop, with_keys=True)
    shared_access.regenerate_key(EntityAddress(shop, "news"), "reader")
    keys = shared_access.get_policy(EntityAddress(shop, "news"), "reader").keys
    namespaces.step_clock(shop, MINUTE)
    now = namespaces.get_clock(shop).now
    SERVICE_BUS["rights"](shop)
    apply_import(file)
    assert shared_access.get_policy(EntityAddress(shop, "news"), "reader").keys == keys
    assert namespaces.get_clock(shop).now == now


def test_a_new_policy_gets_the_keys_of_the_file_which_no_preview_shows(shop):
    news = EntityAddress(shop, "news")
    file, keys = exported(shop, with_keys=True), shared_access.get_policy(news, "reader").keys
    shared_access.delete_policy(news, "reader")
    assert not any(key in repr(preview_import(file)) for key in keys)
    apply_import(file)
    assert shared_access.get_policy(news, "reader").keys == keys


def test_a_key_that_no_connection_string_can_hold_is_refused(shop):
    key = shared_access.get_policy(EntityAddress(shop, "news"), "reader").primary_key
    with pytest.raises(InvalidArgument, match="primary_key: a key must have"):
        preview_import([line.replace(key, "two words") for line in exported(shop, with_keys=True)])


def test_the_configuration_history_names_the_importing_user(shop):
    file = exported(shop)
    SERVICE_BUS["durations"](shop)
    count = len(reads.revisions(_orders(shop)))
    apply_import(file, actor=Actor("user", "vera", Right.MANAGE | Right.BROWSE))
    revisions = reads.revisions(_orders(shop))
    assert len(revisions) == count + 1
    assert "vera" in revisions[0].actor


def test_celery_bindings_are_added(shop):
    bind = {"namespace": shop, "path": "orders", "exchange": "celery", "routing_key": "mail"}
    before = "SELECT count(*) FROM vitrine_celery_binding WHERE exchange = %s"
    file = edited(exported(shop), entity={"celery_bindings": [["celery", bind["routing_key"]]]})
    assert changed_items(preview_import(file), Result.CREATED) == ["Celery binding 'celery: mail' of 'audit'"]
    apply_import(file)
    assert connections.current().execute(before, ["celery"]).fetchone()[0] == 1
    assert preview_import(file).is_empty


def test_protection_is_added_and_never_removed(place):
    paths = [row.address.path for row in reads.overview(place)]
    unprotected = exported(place)
    for path in paths:
        namespaces.set_protected(EntityAddress(place, path), True)
    protected = exported(place)
    assert preview_import(unprotected).is_empty
    assert len(changed_items(preview_import(unprotected), Result.KEPT)) == len(paths)
    namespaces.set_protected(EntityAddress(place, paths[0]), False)
    assert changed_items(preview_import(protected), Result.CREATED) == [f"protection 'from deletion' of '{paths[0]}'"]
    apply_import(protected)
    assert all(row.protected for row in reads.overview(place))
    assert preview_import(protected).is_empty


def test_the_command_updates_and_previews_a_namespace_that_exists(shop, tmp_path, capsys):
    service_bus.send(_orders(shop), [Message(b"x")])
    call_command("export_vitrine", shop, without_messages=True)
    file = tmp_path / "shop.jsonl"
    file.write_text(capsys.readouterr().out)
    wanted = configuration(shop)
    SERVICE_BUS["durations"](shop)
    SERVICE_BUS["no policy"](shop)
    changed = configuration(shop)
    call_command("import_vitrine", str(file), update=True, dry_run=True)
    printed = capsys.readouterr().out
    assert f"{shop} (exists): 1 created, 1 changed" in printed
    assert "  created: shared-access policy 'reader' of 'news'\n" in printed
    assert "  changed: queue 'orders'\n    lock_duration: 5 min -> 1 min\n" in printed
    assert printed.endswith("Nothing was stored.\n")
    assert configuration(shop) == changed
    call_command("import_vitrine", str(file), update=True)
    assert f"imported {shop}: 1 created, 1 changed" in capsys.readouterr().out
    assert configuration(shop) == wanted
    with pytest.raises(CommandError, match="already exists"):
        call_command("import_vitrine", str(file))
    with pytest.raises(CommandError, match="needs --update"):
        call_command("import_vitrine", str(file), dry_run=True)


def test_policies_and_service_properties_are_previewed_in_words(jobs):
    rule = CorsRule(("https://shop.example",), ("GET", "PUT"), max_age_seconds=60)
    accounts.set_service_properties(jobs, cors=(rule,))
    QUEUE_STORAGE["access policies"](jobs)
    keys, file = accounts.get_keys(jobs).keys, exported(jobs, with_keys=True)
    storage.update_queue(EntityAddress(jobs, "mail"), access_policies=POLICIES[1:])
    accounts.set_service_properties(jobs, cors=(), minute_metrics=Metrics(enabled=True))
    accounts.regenerate_key(jobs)
    printed = str(preview_import(file))
    empty = "empty: no permissions or times of its own"
    assert f"access_policies: {empty} -> readers: read and process, until 2030-01-01 | {empty}" in printed
    assert f"  changed: service properties '{jobs}'\n" in printed
    assert "    cors: none -> GET, PUT from https://shop.example; cached for 60 s" in printed
    assert "    minute_metrics: on; kept -> off; kept" in printed
    apply_import(file)
    account = accounts.get_keys(jobs)
    assert account.properties.cors == (rule,) and account.keys != keys, "an update changes no keys"
    assert storage.get_queue(EntityAddress(jobs, "mail")).access_policies == POLICIES


def test_an_import_requires_the_right_to_manage(shop):
    actor = Actor("user", "vic", Right.BROWSE | Right.OPERATE)
    for use_case in (preview_import, apply_import):
        with pytest.raises(NotAuthorized):
            use_case(exported(shop), actor=actor)


def test_a_namespace_that_appears_twice_is_refused(jobs):
    header, *section, end = exported(jobs)
    total = end.replace('"entities":2', '"entities":4')
    with pytest.raises(InvalidArgument, match="appears twice"):
        apply_import([header, *section, *section, total])


def test_vitrines_own_namespace_is_refused(shop):
    own = namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True).name
    with pytest.raises(NotAllowed, match="used by Vitrine itself"):
        preview_import(exported(shop), name=own)
