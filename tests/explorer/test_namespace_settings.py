"""The page with the settings of a namespace: its maximum size, with a preview (SB-012)."""

import re

import pytest
from django.urls import reverse

from broker_core import namespaces, rabbitmq, service_bus
from broker_core.common.errors import InvalidArgument, NamespaceFull, NotAllowed, PreviewOutdated
from broker_core.common.types import EntityAddress, Family
from broker_core.rabbitmq import Publication
from broker_core.service_bus.rules.values import Message
from explorer.models import AuditRecord
from tests.fixtures import make_queue, queue, vhost  # noqa: F401 - fixtures
from tests.html import body_of


def max_size(namespace):
    return namespaces.get_namespace(namespace).max_size_in_megabytes


def token_in(page):
    return re.search(r'name="token" value="([^"]+)"', page).group(1)


def test_an_administrator_sets_and_removes_the_maximum_size(queue, as_):  # noqa: F811
    client, at = as_("administrator"), f"/namespace-settings/{queue.namespace}/"
    assert at in body_of(client.get(f"/namespaces/{queue.namespace}/"))
    page = body_of(client.post(at, {"max_size_in_megabytes": "2000"}, follow=True))
    assert f"Changed the maximum size of {queue.namespace} from unlimited to 2,000 MB." in page and "at most 2,000 MB" in page
    assert max_size(queue.namespace) == 2000
    assert 'value="2000"' in body_of(client.get(at))
    client.post(at, {"max_size_in_megabytes": ""})
    assert max_size(queue.namespace) is None
    [last, _] = AuditRecord.objects.filter(target=queue.namespace, action="change namespace").order_by("-id")
    assert (last.outcome, last.detail) == ("done", f"Changed the maximum size of {queue.namespace} from 2,000 MB to unlimited.")


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_administrators_see_the_form(queue, as_, role):  # noqa: F811
    client, at = as_(role), f"/namespace-settings/{queue.namespace}/"
    assert at not in body_of(client.get(f"/namespaces/{queue.namespace}/"))
    assert client.get(at).status_code == client.post(at, {"max_size_in_megabytes": "1"}).status_code == 403
    assert max_size(queue.namespace) is None


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", str(2**31)])
def test_a_wrong_size_is_reported_at_its_field(queue, as_, text):  # noqa: F811
    response = as_("administrator").post(f"/namespace-settings/{queue.namespace}/", {"max_size_in_megabytes": text})
    assert response.status_code == 400 and 'id="id_max_size_in_megabytes_error"' in body_of(response)
    assert max_size(queue.namespace) is None


def test_the_preview_says_from_when_on_sends_are_refused(queue, as_):  # noqa: F811
    client, at = as_("administrator"), f"/namespace-settings/{queue.namespace}/"
    service_bus.send(queue, [Message(b"x" * 200_000) for _ in range(6)])

    def previewed(text):
        return body_of(client.post(at, {"max_size_in_megabytes": text, "preview": "1"}))

    assert "have 1.1 MB: sends will be refused when they have 2 MB." in previewed("2")
    assert "have 1.1 MB: sends will be refused until they have less than 1 MB. Messages can still be received." in previewed("1")
    assert "Nothing would change." in previewed("") and 'name="token"' not in previewed("")
    assert max_size(queue.namespace) is None
    client.post(at, {"max_size_in_megabytes": "1", "token": token_in(previewed("1"))})
    assert max_size(queue.namespace) == 1
    with pytest.raises(NamespaceFull):
        service_bus.send(queue, [Message()])
    assert "no longer limited" in previewed("")


def test_a_previewed_maximum_size_is_saved_only_if_the_stored_size_is_the_same(queue, as_):  # noqa: F811
    client, at = as_("administrator"), f"/namespace-settings/{queue.namespace}/"
    token = token_in(body_of(client.post(at, {"max_size_in_megabytes": "5", "preview": "1"})))
    namespaces.update_namespace(queue.namespace, max_size_in_megabytes=7)
    response = client.post(at, {"max_size_in_megabytes": "5", "token": token})
    assert response.status_code == 409 and "has changed since the preview" in body_of(response)
    assert max_size(queue.namespace) == 7 and token_in(body_of(response)) != token
    with pytest.raises(PreviewOutdated):
        namespaces.change_limits(queue.namespace, 5, token=token)


def test_a_previewed_maximum_size_is_not_saved_if_the_namespace_would_now_be_full(queue):  # noqa: F811
    token = namespaces.preview_limits(queue.namespace, 1).token
    service_bus.send(queue, [Message(b"x" * 200_000) for _ in range(6)])
    with pytest.raises(PreviewOutdated, match="whether its messages reach the new"):
        namespaces.change_limits(queue.namespace, 1, token=token)
    assert max_size(queue.namespace) is None


def test_all_families_have_the_page(jobs, vhost, as_):  # noqa: F811
    rabbitmq.declare_queue(EntityAddress(vhost, "q"))
    rabbitmq.publish(vhost, [Publication(b"x" * 400_000, routing_key="q") for _ in range(3)])
    client = as_("administrator")
    for name, size in ((jobs.namespace, "0.0"), (vhost, "1.1")):
        at = reverse("explorer:namespace_settings", args=(name,))
        assert f"have {size} MB" in body_of(client.post(at, {"max_size_in_megabytes": "3", "preview": "1"}))
        assert client.post(at, {"max_size_in_megabytes": "3"}).status_code == 302
        assert max_size(name) == 3


def test_vitrines_own_namespace_has_no_maximum_size(broker_database, as_):
    namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True)
    client = as_("administrator")
    assert "/namespace-settings/" not in body_of(client.get("/namespaces/system/"))
    assert client.post("/namespace-settings/system/", {"max_size_in_megabytes": "1"}).status_code == 409
    with pytest.raises(NotAllowed):
        namespaces.preview_limits("system", 1)


def test_a_preview_checks_the_size(queue):  # noqa: F811
    with pytest.raises(InvalidArgument, match="max_size_in_megabytes: must be a whole number from 0"):
        namespaces.preview_limits(queue.namespace, -1)
