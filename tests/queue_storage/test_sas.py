"""Shared access signatures: those that the official SDK makes, what they permit, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from azure.storage.queue import (
    AccountSasPermissions,
    QueueSasPermissions,
    ResourceTypes,
    generate_account_sas,
    generate_queue_sas,
)

from broker_core.queue_storage.rules import sas
from broker_core.queue_storage.rules.errors import (
    AuthenticationFailed,
    AuthorizationProtocolMismatch,
    AuthorizationServiceMismatch,
    AuthorizationSourceIPMismatch,
)
from broker_core.queue_storage.rules.sas import AccessPolicy

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
OTHER = "A" * 86 + "=="
NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
EARLIER = NOW - timedelta(hours=1)
QUERY = {"sv": "2026-10-06", "sp": "r", "se": "2026-11-21T03:00:00Z", "sig": "x"}


def of_account(**given):
    options: dict[str, Any] = {
        "resource_types": ResourceTypes(object=True),
        "permission": AccountSasPermissions(add=True),
        "expiry": LATER,
    } | given
    return sas.parse(parse_qsl(generate_account_sas("shop", KEY, **options)))


def of_queue(**options):
    return sas.parse(parse_qsl(generate_queue_sas("shop", "orders", KEY, **options)))


def parsed(**fields):
    return sas.parse([(name, value) for name, value in (QUERY | fields).items() if value is not None])


@pytest.mark.parametrize(
    "options", [{}, {"start": EARLIER, "ip": "10.0.0.1-10.0.0.9", "protocol": "https"}, {"permission": "rwdlacup"}]
)
def test_an_account_sas_of_the_sdk_is_accepted(options):
    signature = of_account(**options)
    sas.check_signature(signature, [OTHER, KEY], account="shop", queue=None)
    sas.check_signature(signature, [KEY], account="shop", queue="orders")
    assert signature.is_for_account
    assert sas.permitted(signature, {}, NOW) == options.get("permission", "a")


def test_a_service_sas_of_the_sdk_is_for_its_queue_only():
    signature = of_queue(permission=QueueSasPermissions(read=True, process=True), expiry=LATER)
    sas.check_signature(signature, [KEY], account="shop", queue="orders")
    assert sas.permitted(signature, {}, NOW) == "rp"
    for account, queue in (("shop", "other"), ("other", "orders"), ("shop", None)):
        with pytest.raises(AuthenticationFailed):
            sas.check_signature(signature, [KEY], account=account, queue=queue)


def test_an_older_account_sas_has_no_line_of_an_encryption_scope():
    signature = parsed(ss="q", srt="o", sv="2020-10-02")
    assert sas.text_to_sign(signature, account="shop", queue=None) == "shop\nr\nq\no\n\n2026-11-21T03:00:00Z\n\n\n2020-10-02\n"
    signature = parsed(ss="q", srt="o", sv="2020-12-06")
    assert sas.text_to_sign(signature, account="shop", queue=None).endswith("\n2020-12-06\n\n")


@pytest.mark.parametrize(
    ("policy", "options", "letters"),
    [
        (AccessPolicy("p", None, "2026-11-21T03:00:00.0000000Z", "rau"), {}, "rau"),
        (AccessPolicy("p"), {"permission": "r", "expiry": LATER}, "r"),
        (AccessPolicy("p", expiry="2026-11-22"), {"permission": "r"}, "r"),
        (AccessPolicy("p", permission="p"), {"expiry": LATER}, "p"),
        (AccessPolicy("p", start="2026-11-21T02:00Z", permission="p"), {"expiry": LATER}, "p"),
    ],
)
def test_a_stored_access_policy_says_what_the_signature_leaves_out(policy, options, letters):
    """QS-096."""
    signature = of_queue(policy_id="p", **options)
    sas.check_signature(signature, [KEY], account="shop", queue="orders")
    assert sas.permitted(signature, {"p": policy}, NOW) == letters


@pytest.mark.parametrize(
    ("policies", "options", "problem"),
    [
        ({}, {}, "has no stored access policy 'p'"),
        ({"p": AccessPolicy("p", permission="r")}, {}, "has an expiry"),
        ({"p": AccessPolicy("p", expiry="2026-11-22", permission="r")}, {"permission": "r"}, "Both the signature and its stored"),
        ({"p": AccessPolicy("p", expiry="2026-11-22", permission="r")}, {"expiry": LATER}, "Both the signature and its stored"),
        ({"p": AccessPolicy("p", expiry="2026-11-21", permission="r")}, {}, "expired at 2026-11-21;"),
        ({"p": AccessPolicy("p", "2026-11-21T02:01Z", "2026-11-22", "r")}, {}, "not valid before 2026-11-21T02:01Z"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(policies, options, problem):
    with pytest.raises(AuthenticationFailed, match=problem):
        sas.permitted(of_queue(policy_id="p", **options), policies, NOW)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sv": None}, "version sv='' must be a date"),
        ({"sv": "2014-02-14"}, "must be a date from 2015-04-05 on"),
        ({"sv": "today"}, "must be a date"),
        ({"sig": ""}, "has no sig"),
        ({"sp": None}, "has no sp"),
        ({"se": None}, "has no se"),
        ({"ss": "q"}, "has no srt"),
        ({"srt": "o"}, "has no ss"),
        ({"skoid": "x"}, "User delegation signatures are not supported"),
    ],
)
def test_an_incomplete_signature_is_refused(fields, problem):
    with pytest.raises(AuthenticationFailed, match=problem):
        parsed(**fields)


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(AuthenticationFailed, match="sp is given twice"):
        sas.parse([*QUERY.items(), ("sp", "raup")])


@pytest.mark.parametrize(
    ("now", "problem"), [(LATER, "expired at"), (EARLIER - timedelta(seconds=1), "not valid before"), (EARLIER, None)]
)
def test_a_signature_is_valid_from_its_start_until_before_its_expiry(now, problem):
    signature = of_queue(permission="r", start=EARLIER, expiry=LATER)
    if problem is None:
        assert sas.permitted(signature, {}, now) == "r"
    else:
        with pytest.raises(AuthenticationFailed, match=problem):
            sas.permitted(signature, {}, now)


def test_a_time_that_cannot_be_read_is_refused():
    with pytest.raises(AuthenticationFailed, match="se='soon' must be a time"):
        sas.permitted(parsed(se="soon"), {}, NOW)


@pytest.mark.parametrize(
    ("fields", "use", "mismatch"),
    [
        ({}, {}, None),
        ({"ss": "bq", "srt": "o"}, {}, None),
        ({"ss": "bf", "srt": "o"}, {}, AuthorizationServiceMismatch),
        ({"spr": "https"}, {"is_tls": True}, None),
        ({"spr": "https,http"}, {}, None),
        ({"spr": "https"}, {}, AuthorizationProtocolMismatch),
        ({"spr": "HTTPS"}, {}, AuthorizationProtocolMismatch),
        ({"spr": "tls"}, {"is_tls": True}, AuthorizationProtocolMismatch),
        ({"sip": "10.0.0.1"}, {"client_ip": "10.0.0.1"}, None),
        ({"sip": "10.0.0.1"}, {"client_ip": "::ffff:10.0.0.1"}, None),
        ({"sip": "10.0.0.1-10.0.0.9"}, {"client_ip": "10.0.0.9"}, None),
        ({"sip": "10.0.0.1-10.0.0.9"}, {"client_ip": "10.0.0.10"}, AuthorizationSourceIPMismatch),
        ({"sip": "10.0.0.1-10.0.0.9"}, {"client_ip": "fe80::1"}, AuthorizationSourceIPMismatch),
        ({"sip": "everywhere"}, {"client_ip": "10.0.0.1"}, AuthorizationSourceIPMismatch),
        ({"sip": "0.0.0.0-255.255.255.255"}, {"client_ip": "::1"}, AuthorizationSourceIPMismatch),
        ({"sip": "10.0.0.1-fe80::1"}, {"client_ip": "10.0.0.1"}, AuthorizationSourceIPMismatch),
        ({"sip": "10.0.0.9-10.0.0.1"}, {"client_ip": "10.0.0.9"}, AuthorizationSourceIPMismatch),
        ({"sip": "10.0.0.1-"}, {"client_ip": "10.0.0.1"}, AuthorizationSourceIPMismatch),
        ({"sip": "fe80::1-fe80::9"}, {"client_ip": "fe80::5%eth0"}, None),
    ],
)
def test_a_signature_is_for_services_protocols_and_addresses(fields, use, mismatch):
    use = {"is_tls": False, "client_ip": "127.0.0.1"} | use
    if mismatch is None:
        sas.check_use(parsed(**fields), **use)
    else:
        with pytest.raises(mismatch):
            sas.check_use(parsed(**fields), **use)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T02:55Z", datetime(2026, 11, 21, 2, 55, tzinfo=UTC)),
        ("2026-11-21T02:55:46Z", datetime(2026, 11, 21, 2, 55, 46, tzinfo=UTC)),
        ("2026-11-21T02:55:46.1234567Z", datetime(2026, 11, 21, 2, 55, 46, 123456, tzinfo=UTC)),
        ("2026-11-21T02:55:46.5Z", datetime(2026, 11, 21, 2, 55, 46, 500000, tzinfo=UTC)),
        ("2026-13-21", None),
        ("2026-11-21T25:00Z", None),
        ("2026-11-21T02:55:46", None),
        ("2026-11-21T02:55:46+01:00", None),
        ("\uff12026-11-21", None),
        ("", None),
    ],
)
def test_times_are_read(text, at):
    assert sas.read_instant(text) == at


@pytest.mark.parametrize(
    ("made", "of_sdk"),
    [
        ({"services": "q", "types": "o", "permission": "a"}, {}),
        (
            {"services": "q", "types": "sco", "permission": "rwdlacup", "start": "2026-11-21T01:00:00Z", "protocols": "https"}
            | {"addresses": "10.0.0.1-10.0.0.9"},
            {"resource_types": "sco", "permission": "rwdlacup", "start": EARLIER, "protocol": "https", "ip": "10.0.0.1-10.0.0.9"},
        ),
    ],
)
def test_an_account_sas_made_here_is_that_of_the_sdk(made, of_sdk):
    theirs = of_account(**of_sdk)
    ours = sas.signed(sas.Sas(theirs.version, expiry="2026-11-21T03:00:00Z", **made), KEY, account="shop")
    assert ours == theirs
    assert sas.parse(parse_qsl(sas.as_query(ours))) == theirs


@pytest.mark.parametrize(
    ("made", "of_sdk"),
    [
        ({"permission": "rp", "expiry": "2026-11-21T03:00:00Z"}, {"permission": "rp", "expiry": LATER}),
        ({"policy_id": "a&b=ü +"}, {"policy_id": "a&b=ü +"}),
        ({"policy_id": "p", "expiry": "2026-11-21T03:00:00Z"}, {"policy_id": "p", "expiry": LATER}),
    ],
)
def test_a_service_sas_made_here_is_that_of_the_sdk(made, of_sdk):
    theirs = of_queue(**of_sdk)
    ours = sas.signed(sas.Sas(theirs.version, **made), KEY, account="shop", queue="orders")
    assert ours == theirs
    assert sas.parse(parse_qsl(sas.as_query(ours))) == theirs


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (AccessPolicy("p", "2026-11-20", "2026-11-21", "rap"), "p: read, add and process, from 2026-11-20, until 2026-11-21"),
        (AccessPolicy("p", permission="u"), "p: update"),
        (AccessPolicy("p"), "p: no permissions or times of its own"),
    ],
)
def test_a_policy_in_words(policy, words):
    assert str(policy) == words
