"""Queues with something in each state, people with each role, and every address of the explorer."""

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from broker_core import namespaces, queue_storage, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from tests.clients import rows
from tests.fixtures import account, broker_database, namespace  # noqa: F401 - fixtures

FRAGMENT = {"HX-Request": "true", "HX-Request-Type": "partial"}
WORKER = Actor("process", "worker", Right.ALL)
_numbers = itertools.count()


@pytest.fixture
def shop(db):
    """A queue with a message in every state. Numbers: 1 completed, 2 dead-lettered, 3 deferred, 4 locked by a worker, 5 active,
    6 scheduled, 7 expired. Its name has a slash, as names may."""
    address = EntityAddress(f"shop-{next(_numbers)}-{uuid.uuid4().hex[:6]}", "eu/orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address, max_delivery_count=3)
    sent = [
        Message(body=b'{"n": 1}', message_id=f"order-{n}", subject="placed", properties={"region": "eu"}) for n in range(1, 6)
    ]
    service_bus.send(address, sent, actor=WORKER)
    first, second, third, _ = service_bus.receive(address, 4, actor=WORKER)
    service_bus.complete(address, [first.lock_token], actor=WORKER)
    service_bus.dead_letter(address, [second.lock_token], "PaymentRefused", "no <money>", actor=WORKER)
    service_bus.defer(address, [third.lock_token], actor=WORKER)
    later = datetime.now(UTC) + timedelta(hours=1)
    service_bus.send(address, [Message(body=b"later", message_id="reminder", scheduled_enqueue_at=later)], actor=WORKER)
    service_bus.send(address, [Message(body=b"brief", message_id="brief", time_to_live=timedelta(microseconds=1))], actor=WORKER)
    return address


@pytest.fixture
def market(shop):
    """Beside the shop: a topic with a subscription of each sort of rule, and a queue with sessions. The topic's address."""
    topic = EntityAddress(shop.namespace, "market/news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    entities.create_subscription(topic.subscription("eu"), rule=Rule("Europe", compile_filter("region = 'eu'")))
    vip = Rule("Vip", CorrelationFilter(subject="vip"), compile_action("SET seen = 'yes'"))
    entities.create_subscription(topic.subscription("vips"), rule=vip, requires_session=True)
    entities.create_queue(EntityAddress(shop.namespace, "carts"), requires_session=True)
    return topic


@pytest.fixture
def as_(person):
    """as_("viewer") -> a test client signed in as a person with that role."""

    def make(role="operator", client=None):
        client = client or Client()
        client.user = person(role, username=f"{role}-{uuid.uuid4().hex[:6]}")
        client.force_login(client.user)
        return client

    return make


@pytest.fixture
def jobs(db):
    """A storage queue with a message in every state. Numbers: 1 deleted, 2 leased, 3 leased for longer, 4 delayed, 5 rescheduled,
    6 expired, 7 visible and spent once, 8 visible. Messages got twice go to jobs-poison, which has number 1."""
    address = EntityAddress(f"shop{next(_numbers)}{uuid.uuid4().hex[:8]}", "jobs")
    queue_storage.create_account(address.namespace)
    queue_storage.create_queue(address, max_dequeue_count=2, metadata={"team": "billing"}, expiry_grace=timedelta(days=1))
    hour = timedelta(hours=1)
    queue_storage.put_all(address, [f"job {n}" for n in range(1, 4)], actor=WORKER)
    first, _, third = queue_storage.get(address, 3, visibility_timeout=hour, actor=WORKER)
    queue_storage.delete(address, first.message_id, first.pop_receipt, actor=WORKER)
    queue_storage.update(address, third.message_id, third.pop_receipt, visibility_timeout=2 * hour, actor=WORKER)
    queue_storage.put(address, "later", visibility_timeout=hour, actor=WORKER)
    put = queue_storage.put(address, "even later", actor=WORKER)
    queue_storage.update(address, put.message_id, put.pop_receipt, visibility_timeout=2 * hour, actor=WORKER)
    namespaces.pause_clock(address.namespace)
    queue_storage.put(address, "brief", time_to_live=timedelta(seconds=1), actor=WORKER)
    namespaces.step_clock(address.namespace, timedelta(seconds=1))
    queue_storage.put(address, "tried", actor=WORKER)
    [tried] = queue_storage.get(address, visibility_timeout=timedelta(seconds=1), actor=WORKER)
    assert tried.sequence_number == 7
    namespaces.step_clock(address.namespace, timedelta(seconds=1))
    namespaces.resume_clock(address.namespace)
    queue_storage.put(address, '{"n": 8}', time_to_live=None, actor=WORKER)
    poison = EntityAddress(address.namespace, "jobs-poison")
    queue_storage.create_queue(poison)
    queue_storage.put(poison, "failed", actor=WORKER)
    return address


def _somebody():
    return get_user_model().objects.get_or_create(username="somebody")[0].get_username()


def _task() -> PeriodicTask:
    """A background task; those of the migrations are gone where a test emptied the tables."""
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period=IntervalSchedule.MINUTES)
    return PeriodicTask.objects.get_or_create(
        task="broker_core.expire_messages", defaults={"name": "Expire messages", "interval": every}
    )[0]


def _policy(queue: EntityAddress) -> str:
    if not any(policy.name == "app" for policy in shared_access.list_policies(queue)):
        shared_access.create_policy(queue, "app", send=True)
    return "app"


def addresses_of(queue: EntityAddress, jobs: EntityAddress) -> dict[str, list[str]]:
    """An address or more for every page, by its name in the URL configuration; a test holds that none is forgotten."""
    at, stored = f"{queue.namespace}/{queue.path}", f"{jobs.namespace}/{jobs.path}"
    topic, carts = f"{queue.namespace}/market/news", f"{queue.namespace}/carts"
    eu, vips = f"{topic}/Subscriptions/eu", f"{topic}/Subscriptions/vips"
    return {
        "now": ["/", f"/?namespace={queue.namespace}"],
        "entities": ["/entities/", "/entities/?q=orders+dead%3E0&sort=-dead&all=1"],
        "namespace": [f"/namespaces/{queue.namespace}/", f"/namespaces/{jobs.namespace}/?sort=-leased"],
        "clock": [f"/clocks/{queue.namespace}/", f"/clocks/{jobs.namespace}/?entity={jobs.path}"],
        "namespace_new": ["/new-namespace/", "/new-namespace/?family=queue_storage"],
        "namespace_settings": [f"/namespace-settings/{queue.namespace}/", f"/namespace-settings/{jobs.namespace}/"],
        "namespace_delete": [f"/delete-namespace/{queue.namespace}/", f"/delete-namespace/{jobs.namespace}/"],
        "storage_queue_new": [f"/new-storage-queue/?namespace={jobs.namespace}"],
        "connections": ["/connections/", "/connections/?q=orders+by:key:app"],
        "connection": [f"/connections/{rows.connect(queue, actor=str(WORKER))}/"],
        "locks": ["/locks/", f"/locks/?q={queue.namespace}+holder:worker"],
        "actor": ["/actors/process/worker/", "/actors/broker/broker/"],
        "messages": ["/messages/", "/messages/?q=order-2", "/messages/?q=nothing", "/messages/?q=size>1"],
        "saved_filters": ["/filters/"],
        "message_templates": [
            "/templates/",
            f"/templates/?family=service_bus&namespace={queue.namespace}&path={queue.path}",
        ],
        "insights": [
            "/insights/",
            *(f"/insights/?range={span}" for span in ("5m", "1d", "7d", "90d")),
            f"/insights/?entity={at}",
            f"/insights/?entity={topic}",
            f"/insights/?namespace={jobs.namespace}",
        ],
        "tail": ["/tail/", f"/tail/?q=entity:{at}+event:failures", f"/tail/?q=namespace:{jobs.namespace}"],
        "configuration": ["/configuration/"],
        "administration": ["/administration/"],
        "people": ["/administration/people/"],
        "person_new": ["/administration/new-person/"],
        "person": [f"/administration/people/{_somebody()}/"],
        "access_keys": ["/administration/keys/"],
        "access_policy_new": ["/administration/new-access-policy/"],
        "access_policy": [f"/administration/keys/RootManageSharedAccessKey/{queue.namespace}/"],
        "entity_access_policy": [f"/administration/keys/{_policy(queue)}/{at}"],
        "account_keys": [f"/administration/account-keys/{jobs.namespace}/"],
        "account_signature": [f"/administration/new-signature/{jobs.namespace}/"],
        "queue_signature": [f"/administration/new-signature/{stored}"],
        "service_properties": [f"/service-properties/{jobs.namespace}/"],
        "policies": ["/administration/policies/"],
        "background_tasks": ["/administration/background-tasks/"],
        "background_task": [f"/administration/background-tasks/{_task().pk}/"],
        "storage": ["/administration/storage/"],
        "audit": ["/administration/activity/", "/administration/activity/?q=outcome:refused+at%3E09:00"],
        "help": ["/learn/"],
        "glossary": ["/learn/glossary/"],
        "code": [f"/code/{at}", f"/code/{at}?number=5"],
        "connect": [f"/connect/{at}", f"/connect/{stored}"],
        "namespace_connect": [f"/connect/{queue.namespace}/", f"/connect/{jobs.namespace}/"],
        "keys": ["/learn/keys/"],
        "map": ["/map/", f"/map/?namespace={queue.namespace}&view=table", f"/map/?entity={topic}", "/map/?actor=process:worker"],
        "entity_new": ["/new/queue/", "/new/topic/", "/new/subscription/"],
        "entity_settings": [f"/settings/{place}" for place in (at, topic, eu, stored)],
        "entity_revisions": [f"/revisions/{place}" for place in (at, topic, eu, stored)],
        "entity_delete": [f"/delete/{place}" for place in (at, topic, eu, stored)],
        "rule_new": [f"/new-rule/{eu}"],
        "rule": [f"/rules/Europe/{eu}", f"/rules/Vip/{vips}"],
        "rule_delete": [f"/delete-rule/Europe/{eu}"],
        "test_rules": [
            f"/test-rules/{topic}",
            f"/test-rules/{eu}?property_name=region&property_type=string&property_value=eu",
            f"/test-rules/{topic}?subject=vip&session_id=s",
        ],
        "release_locks": [f"/release-locks/{at}"],
        "message_edit": [f"/edit/{at}/5", f"/edit/{stored}/8"],
        "entity": [
            f"/entities/{at}",
            *(
                f"/entities/{at}?tab={tab}"
                for tab in ("active", "locked", "scheduled", "deferred", "dead-letter", "receivers", "history")
            ),
            f"/entities/{at}?tab=history&q=outcome:completed+by:process:worker",
            f"/entities/{at}?q=id:order-5+body:n+prop.region=eu&order=oldest",
            f"/entities/{at}?q=id:none-such",
            *(f"/entities/{topic}?tab={tab}" for tab in ("subscriptions", "scheduled", "history")),
            *(f"/entities/{eu}?tab={tab}" for tab in ("active", "rules", "dead-letter")),
            *(f"/entities/{carts}?tab={tab}" for tab in ("active", "sessions")),
            f"/entities/{stored}",
            f"/entities/{at}?m=4",
            *(f"/entities/{place}?view=board" for place in (f"{at}", carts, eu, stored)),
            f"/entities/{at}?view=board&m=4",
            f"/entities/{at}?at=2020-01-01T00:00:00Z",
            f"/entities/{topic}?at=2020-01-01",
            f"/entities/{stored}?at=2020-01-01&view=board",
            f"/entities/{at}?tab=dead-letter&m=2",
            f"/entities/{stored}?m=8",
            *(
                f"/entities/{stored}?tab={tab}"
                for tab in ("all", "visible", "delayed", "leased", "expired", "receivers", "history")
            ),
            f"/entities/{stored}?tab=visible&q=body:job&order=oldest",
            f"/entities/{stored}-poison",
        ],
        "dead_letters": ["/dead-letters/", f"/dead-letters/?q={queue.namespace}+reason:Payment"],
        "dead_letter_group": [
            f"/dead-letters/dead-letter/{at}",
            f"/dead-letters/dead-letter/{at}?q=reason%3DPaymentRefused&m=2&tried=2",
            f"/dead-letters/main/{stored}-poison",
        ],
        "operations": ["/operations/"],
        "messages_import": [f"/import-messages/{at}", f"/import-messages/{stored}"],
        "operation_new": [
            f"/operate/{at}?kind=purge&tab=active",
            f"/operate/{at}?kind=move&tab=dead-letter&filter=reason:Payment",
            f"/operate/{at}?kind=repair&tab=dead-letter",
            f"/operate/{stored}?kind=purge&tab=all",
        ],
        "send": [f"/send/{at}", f"/send/{at}?like=5", f"/send/{topic}", f"/send/{stored}", f"/send/{stored}?like=8"],
        "receiver": [
            f"/receive/main/{at}",
            f"/receive/main/{carts}",
            f"/receive/dead-letter/{at}",
            f"/receive/main/{stored}",
        ],
        "compare": [f"/compare/{at}?a=4&b=5", f"/compare/{stored}?a=1&b=8"],
        "message": [
            *(f"/messages/{at}/{number}" for number in (1, 2, 3, 4, 5, 6, 7)),
            *(f"/messages/{stored}/{number}" for number in range(1, 9)),
        ],
    }


@pytest.fixture
def pages(shop, market, jobs):
    return SimpleNamespace(
        shop=shop,
        market=market,
        jobs=jobs,
        at=f"{shop.namespace}/{shop.path}",
        stored=f"{jobs.namespace}/{jobs.path}",
        all=[a for some in addresses_of(shop, jobs).values() for a in some],
    )
