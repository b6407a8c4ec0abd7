"""`manage.py storage_sas`: signatures that the REST API accepts."""

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from broker_core import queue_storage
from broker_core.common.types import EntityAddress

TEXT = b"<QueueMessage><MessageText>x</MessageText></QueueMessage>"


@pytest.fixture
def orders(account):
    return queue_storage.create_queue(EntityAddress(account, "orders")).address


def printed(name, **options):
    out = StringIO()
    call_command("storage_sas", name, stdout=out, **options)
    return out.getvalue().strip()


def test_a_signature_of_an_account_permits_everything_but_access_policies(client, orders):
    token = printed(client.account)
    assert client.request("PUT", "/another", token, sign=False).status == 201
    assert client.request("GET", "/", f"comp=list&{token}", sign=False).status == 200
    assert client.request("POST", "/orders/messages", token, TEXT, sign=False).status == 201
    assert client.request("GET", "/orders", f"comp=acl&{token}", sign=False).code == "AuthorizationPermissionMismatch"


def test_a_signature_of_a_queue_is_for_its_messages(client, orders):
    token = printed(str(orders), permissions="a")
    assert client.request("POST", "/orders/messages", token, TEXT, sign=False).status == 201
    assert client.request("GET", "/orders/messages", token, sign=False).code == "AuthorizationPermissionMismatch"
    assert client.request("POST", "/another/messages", token, TEXT, sign=False).code == "AuthenticationFailed"


def test_a_signature_is_limited_to_a_time_addresses_and_https(client, orders):
    for options, code in (
        ({"start": "2020-01-01", "seconds": 3600}, "AuthenticationFailed"),
        ({"start": "2199-01-01T12:00Z"}, "AuthenticationFailed"),
        ({"ip": "10.0.0.1-10.0.0.9"}, "AuthorizationSourceIPMismatch"),
        ({"https_only": True}, "AuthorizationProtocolMismatch"),
        ({"start": "2020-01-01T12:00:00Z", "seconds": 604_800, "ip": "127.0.0.1"}, "AuthenticationFailed"),
        ({"ip": "127.0.0.1"}, ""),
    ):
        token = printed(client.account, **options)
        assert client.request("GET", "/", f"comp=list&{token}", sign=False).code == code, options


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("nobody", {}, "nobody"),
        ("{account}/none", {}, "none"),
        ("{account}", {"permissions": "rx"}, "letters rwdlacup"),
        ("{account}/orders", {"permissions": "d"}, "letters raup"),
        ("{account}", {"permissions": ""}, "letters"),
        ("{account}", {"seconds": 0}, "between 1 and 604,800"),
        ("{account}", {"start": "soon"}, "--start must be a time in UTC"),
        ("{account}", {"start": "9999-12-31"}, "--start must be a time in UTC"),
        ("{account}", {"ip": "everywhere"}, "--ip must be an address, or a range"),
    ],
)
def test_what_cannot_be_signed(orders, name, options, problem):
    with pytest.raises(CommandError, match=re.escape(problem)):
        printed(name.format(account=orders.namespace), **options)
