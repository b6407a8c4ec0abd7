"""What strangers and mistakes put in: hostile HTML in every field, bytes that are no text, huge bodies, addresses of others.

Elsewhere: filters that cannot be parsed and JSON paths over other bodies (test_filtering.py), merge patches, a pace of 0 and two
people on one group (test_dead_letters.py, test_operations.py), entities deleted and workers killed meanwhile (tests/operations),
sessions that ended (test_stale_tab.py), large requests (tests/site/test_bodies.py).
"""

import uuid
from urllib.parse import quote

import pytest
from django.test import Client

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.rabbitmq import Publication
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.dead_letters import notes
from explorer.models import AuditRecord, SavedFilter
from tests.html import body_of

from .conftest import WORKER

EVIL = "<img src=x onerror=a()>'\"><script>a()</script>{{ 7|add:1 }}"
HOSTILE = Actor("process", EVIL, Right.ALL)


@pytest.fixture
def hostile(db, as_):
    """A client, and addresses of pages that show what a stranger wrote: in ids, texts, properties, reasons, names and notes."""
    address = EntityAddress(f"evil-{uuid.uuid4().hex[:6]}", "q")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    message = Message(
        EVIL.encode(), message_id=EVIL, properties={EVIL: EVIL}, subject=EVIL, correlation_id=EVIL, session_id=EVIL,
        reply_to=EVIL, to=EVIL, content_type=EVIL,
    )  # fmt: skip
    service_bus.send(address, [message] * 4, actor=HOSTILE)
    first, second, *_ = service_bus.receive(address, 3, actor=HOSTILE)
    service_bus.complete(address, [first.lock_token], actor=HOSTILE)
    service_bus.dead_letter(address, [second.lock_token], EVIL, EVIL, actor=HOSTILE)
    client = as_("administrator")
    notes.write(address.dead_letter, "", EVIL, Actor("user", EVIL, Right.ALL))
    SavedFilter.objects.create(owner=client.user, name=EVIL, text=f'id:"{EVIL[:9]}"')
    client.post(f"/operate/{address}", {"kind": "discard", "tab": "active", "all": "1", "filter": f"subject:{EVIL[:9]}*"})
    client.post("/locks/", {"action": "release", "namespace": address.namespace, "path": "q", "number": "3", "reason": EVIL})
    rabbits = EntityAddress(f"host {EVIL[:40]}", EVIL)
    rabbitmq.create_vhost(rabbits.namespace)
    rabbitmq.declare_queue(rabbits)
    rabbitmq.publish(rabbits.namespace, [Publication(EVIL.encode(), routing_key=EVIL)])
    named = f"{quote(rabbits.namespace, safe='').replace('%2F', '~2F')}/{quote(rabbits.path)}"
    return client, [
        *(f"/entities/{address}?tab={tab}" for tab in ("all", "active", "locked", "dead-letter", "receivers", "history")),
        *(f"/messages/{address}/{number}" for number in (1, 2, 3, 4)),
        f"/entities/{address}?m=3", f"/compare/{address}?a=2&b=3", f"/send/{address}?like=2", f"/receive/main/{address}",
        f"/dead-letters/?q={address.namespace}", f"/dead-letters/dead-letter/{address}?m=2", "/operations/", "/filters/",
        f"/filters/?text={quote(EVIL)}", "/locks/", f"/locks/?q=holder:{quote(EVIL)}", f"/messages/?q={quote(EVIL)}",
        "/administration/activity/", f"/administration/activity/?q={quote(EVIL)}",
        f"/entities/{address}?q={quote(EVIL)}", f"/tail/?q=entity:{address}", "/", "/entities/",
        f"/entities/{named}", f"/messages/{named}/1", f"/send/{named}", f"/entities/?q={quote(EVIL)}", f"/{quote(EVIL)}/",
    ]  # fmt: skip


def test_a_name_longer_than_any_is_refused_and_recorded(shop, as_):
    """Regression: the record of the refused action did not hold the name, which was an internal error."""
    form = {"action": "release", "namespace": shop.namespace, "path": "x" * 70_000, "number": "4", "reason": ""}
    page = body_of(as_("operator").post("/locks/", form, follow=True))
    [record] = AuditRecord.objects.filter(outcome=AuditRecord.Outcome.REFUSED)
    assert "<h1>Locks</h1>" in page and "could not be found. Check the name" in page
    assert record.path == "x" * 260


def test_untrusted_text_is_never_markup(hostile):
    client, addresses = hostile
    shown = 0
    for address in addresses:
        text = client.get(address, follow=True).content.decode()
        assert "<img" not in text and "<script>" not in text, address
        shown += "&lt;img" in text or "&lt;script" in text
    assert shown > len(addresses) / 2


@pytest.fixture
def odd(db):
    """A queue with dead letters whose bodies are no text, and one of more than 1 MB."""
    address = EntityAddress(namespaces.ensure_namespace("odd", Family.SERVICE_BUS, tier="premium").name, uuid.uuid4().hex)
    entities.create_queue(address, max_message_size_in_kilobytes=10 * 1024)
    bodies = [b"\xff\xfe\x00half", b'{"a": "\xff"}', b"x" * 3_000_000]
    service_bus.send(address, [Message(body, properties={"raw": b"\xff\xfe"}) for body in bodies], actor=WORKER)
    for message in service_bus.receive(address, 3, actor=WORKER):
        service_bus.dead_letter(address, [message.lock_token], "Schema", "\ufffd", actor=WORKER)
    return address


def test_binary_and_huge_bodies_cannot_be_edited_and_stay_unchanged(odd, as_):
    client, bench = as_("operator"), f"/dead-letters/dead-letter/{odd}"
    assert "too large to be edited here" in body_of(client.get(f"{bench}?m=3"))
    assert "is not text, so it cannot be edited here" in body_of(client.get(f"{bench}?m=1"))
    for number in (1, 2, 3):
        assert client.get(f"/messages/{odd}/{number}").status_code == 200
    assert client.get(f"/compare/{odd}?a=1&b=3").status_code == 200
    preview = body_of(client.post(f"{bench}?m=2", {"action": "preview-all", "patch": '{"b": 1}'}))
    assert "its body is not JSON" in preview and "too many for a preview" in preview
    client.post(bench, {"action": "repair", "patch": '{"b": 1}', "up_to": "3"})
    assert "3: its body is not JSON" in body_of(client.get(bench))
    assert reads.counts(odd).dead_letter == 3
    assert len(b"".join(client.get(f"/operate/{odd}?kind=export&tab=dead-letter").streaming_content)) > 3_000_000


@pytest.mark.parametrize("query", ["q=%ff%fe", "q=id:%00", "m=%ff", "cursor=%ff", "tab=%ff"])
@pytest.mark.parametrize("path", ["/entities/{at}", "/messages/", "/dead-letters/", "/locks/", "/administration/activity/"])
def test_a_link_with_invalid_utf_8_is_answered(shop, as_, path, query):
    answer = as_("operator").get(f"{path.format(at=shop)}?{query}")
    assert answer.status_code in (200, 400)
    assert b"Traceback" not in answer.content


def test_a_form_with_invalid_utf_8_is_answered(shop, as_):
    answer = as_("operator").post(
        f"/dead-letters/dead-letter/{shop}", b"action=note&note=%ff%fe%00", content_type="application/x-www-form-urlencoded"
    )
    assert answer.status_code == 400 and "Nothing was changed" in body_of(answer)


def test_without_a_right_a_link_does_not_reveal_whether_an_entity_exists(shop, person):
    client = Client()
    client.force_login(person(None, username="nobody"))
    for page in ("/entities/{}/eu/orders", "/messages/{}/eu/orders/4", "/operate/{}/eu/orders?kind=purge&tab=active"):
        there, elsewhere = client.get(page.format(shop.namespace)), client.get(page.format("none"))
        assert there.status_code == elsewhere.status_code == 403
        assert "Permission denied" in body_of(there) and "order-4" not in body_of(there)


@pytest.mark.parametrize(
    "at", ["administration/people/a%00b/", "administration/keys/a%00/demo/", "actors/user/%00/", "code/%00/a"]
)
def test_an_address_with_nul_names_nothing(at, as_, db):
    page = as_("administrator").get(f"/{at}")
    assert page.status_code == 404 and "No name contains the character NUL." in body_of(page)
