"""The keys of properties that the archive keeps of messages: who may choose which, and the page."""

import html
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection

from broker_core import namespaces, queue_storage, rabbitmq
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.history import properties
from broker_core.models import Entity
from broker_core.service_bus import entities
from broker_core.store import connections
from explorer.models import AuditRecord, Sandbox
from explorer.people.roles import ADMINISTRATOR, OPERATOR
from tests.eventually import eventually
from tests.html import body_of

PAGE = "/analyses/archived-properties/"
SETTINGS = ("/settings/reports/q", "/entities/host/mail?tab=settings")


def signed_in(client, role):
    user = get_user_model().objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client.force_login(user)
    return client


@pytest.mark.parametrize("keys", [list("123456789"), ['a"b'], ["a\\b"], ["x" * 129], ["a\x00b"]])
def test_invalid_property_keys_are_refused(db, keys):
    with pytest.raises(InvalidArgument):
        properties.choose([1], keys, actor=Actor("user", "a", Right.ALL))


def test_viewers_cannot_choose_keys(db):
    with pytest.raises(NotAuthorized):
        properties.choose([1], ["a"], actor=Actor("user", "a", Right.BROWSE))


def test_an_actor_with_rights_in_one_namespace_chooses_only_there(transactional_db):
    ids = []
    for name in ("mine", "others"):
        namespaces.ensure_namespace(name, Family.SERVICE_BUS)
        entities.create_queue(EntityAddress(name, "q"))
        ids.append(Entity.objects.get(namespace__name=name).pk)
    actor = Actor("user", "a", Right.ALL, namespace="mine", rights_elsewhere=Right.BROWSE)
    properties.choose(ids[:1], ["a"], actor=actor)
    for some in (ids, ids[1:]):
        with pytest.raises(NotAuthorized):
            properties.choose(some, ["b"], actor=actor)
    assert properties.chosen(ids) == {ids[0]: ["a"]}


def test_two_operators_choose_at_the_same_time(transactional_db):
    """The second waits for the transaction of the first and then replaces its keys."""
    namespaces.ensure_namespace("reports", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("reports", "q"))
    [entity_id] = Entity.objects.values_list("pk", flat=True)
    with ThreadPoolExecutor(1) as others, psycopg.connect(**connections.current_database().parameters()) as first:
        first.execute("BEGIN")
        first.execute("INSERT INTO vitrine_archived_properties VALUES (%s, '{a}')", [entity_id])
        second = others.submit(chosen_on_its_own_connection, entity_id)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        eventually(lambda: connections.current().execute(asked, [first.info.backend_pid]).fetchone()[0] == 1)
        first.execute("COMMIT")
        assert second.result() == ["b"]
    assert properties.chosen([entity_id]) == {entity_id: ["b"]}


def chosen_on_its_own_connection(entity_id):
    try:
        return properties.choose([entity_id], ["b"], actor=Actor("user", "a", Right.ALL))
    finally:
        connection.close()


def choose(*paths):
    ids = [Entity.objects.filter(path=path).latest("pk").pk for path in paths]
    properties.choose(ids, [" region", "subject", "", "region"], actor=Actor("user", "a", Right.ALL))


@pytest.fixture
def shop(transactional_db):
    """A queue for which two keys were chosen."""
    namespaces.ensure_namespace("reports", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("reports", "q"))
    choose("q")
    return Entity.objects.get(path="q")


def test_an_operator_chooses_keys(client, shop):
    operator = signed_in(client, OPERATOR)
    body = body_of(operator.get(PAGE, {"queue": shop.pk}))
    assert "region\nsubject</textarea>" in body and "Save keys" in body
    response = operator.post(f"{PAGE}?queue={shop.pk}", {"keys": "tier\r\n\r\nregion"})
    assert response.status_code == 302 and properties.chosen([shop.pk]) == {shop.pk: ["tier", "region"]}
    refused = operator.post(f"{PAGE}?queue={shop.pk}", {"keys": "\n".join("abcdefghi")})
    assert refused.status_code == 400 and "at most 8" in body_of(refused)
    operator.post(f"{PAGE}?namespace=reports", {"keys": ""})
    assert properties.chosen([shop.pk]) == {}
    assert AuditRecord.objects.filter(action="choose archived properties", outcome="done").count() == 2


def test_a_person_chooses_keys_in_their_own_sandbox(viewer, shop):
    namespaces.ensure_namespace("learn-own", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("learn-own", "q"))
    own = Entity.objects.get(namespace__name="learn-own")
    Sandbox.objects.create(namespace="learn-own", owner=get_user_model().objects.get(), lesson="", family="service_bus")
    for queue, keys in ((own, {own.pk: ["tier"]}), (shop, {shop.pk: ["region", "subject"]})):
        viewer.post(f"{PAGE}?queue={queue.pk}", {"keys": "tier"})
        assert properties.chosen([queue.pk]) == keys


def test_the_settings_pages_and_the_keys_page_link_to_each_other(client, shop):
    rabbitmq.create_vhost("host")
    rabbitmq.declare_queue(EntityAddress("host", "mail"))
    namespaces.ensure_namespace("account", Family.QUEUE_STORAGE)
    queue_storage.create_queue(EntityAddress("account", "jobs"))
    admin = signed_in(client, ADMINISTRATOR)
    assert "Archived properties" not in body_of(admin.get("/settings/account/jobs"))  # its messages have none
    for page, said in zip(SETTINGS, ("Change archived properties", "Choose archived properties"), strict=True):
        body = body_of(admin.get(page))
        assert said in body
        link = html.unescape(body.split(said)[0].rsplit('href="', 1)[1].split('"')[0])
        assert f'href="{html.escape(page)}">Cancel' in body_of(admin.get(link))
        assert admin.post(link, {"keys": "tier"}).url == page
    assert properties.chosen([shop.pk]) == {shop.pk: ["tier"]}
    elsewhere = admin.post(f"{PAGE}?queue={shop.pk}&back=https://example.org/", {"keys": "tier"})
    assert elsewhere.url.startswith("/analyses/")


def test_a_viewer_reads_the_keys(viewer, shop):
    assert "requires the operator role" in body_of(viewer.get(PAGE, {"queue": shop.pk}))
    viewer.post(f"{PAGE}?queue={shop.pk}", {"keys": "x"})
    assert properties.chosen([shop.pk]) == {shop.pk: ["region", "subject"]}
    assert viewer.get(PAGE).status_code == 404


def test_storage_queues_have_no_properties(viewer):
    namespaces.create_namespace("jobs", Family.QUEUE_STORAGE)
    queue_storage.create_queue(EntityAddress("jobs", "work"))
    assert viewer.get(PAGE, {"queue": Entity.objects.get(path="work").pk}).status_code == 404
