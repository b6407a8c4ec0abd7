"""Signatures with an account's key: the texts that clients sign, in either order of headers, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.queue_storage.accounts import checked_key
from broker_core.queue_storage.rules import shared_key
from broker_core.queue_storage.rules.errors import AuthenticationFailed, InvalidAuthenticationInfo
from broker_core.queue_storage.rules.shared_key import Credential, SignedParts, texts_to_sign

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
OTHER = "A" * 86 + "=="
NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
DATE = ("x-ms-date", "Sat, 21 Nov 2026 01:55:46 GMT")


def parts(*headers, method="GET", path="/shop/orders/messages", query=()):
    return SignedParts(method, path, query, headers or (DATE,))


def signed(scheme, given, key=KEY, account="shop", place=0):
    credential = Credential(scheme, account, "")
    text = list(texts_to_sign(credential, given))[place]
    return Credential(scheme, account, shared_key.sign(text, key))


def test_the_text_of_a_create_is_the_one_that_was_observed():
    given = parts(
        ("x-ms-version", "2026-10-06"), ("X-Ms-Date", DATE[1]), ("x-ms-client-request-id", "GUID"), ("Content-Length", "0"),
        ("Host", "127.0.0.1:10001"), method="PUT", path="/devstoreaccount1/sdkq",
    )  # fmt: skip
    [text, *_] = texts_to_sign(Credential("SharedKey", "devstoreaccount1", ""), given)
    assert text == (
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-client-request-id:GUID\nx-ms-date:Sat, 21 Nov 2026 01:55:46 GMT\nx-ms-version:2026-10-06"
        "\n/devstoreaccount1/devstoreaccount1/sdkq"
    )


def test_the_path_is_signed_as_sent_and_the_query_decoded_and_sorted():
    given = parts(DATE, path="/shop/%6Frders", query=[("popreceipt", "a+b=="), ("Comp", "acl"), ("comp", "a")])
    [text, *_] = texts_to_sign(Credential("SharedKey", "shop", ""), given)
    assert text.endswith("\n/shop/shop/%6Frders\ncomp:a,acl\npopreceipt:a+b==")


def test_the_lite_text_has_four_lines_and_only_comp_of_the_query():
    headers = [("Content-Type", "application/xml"), ("Content-MD5", "m"), ("Date", "Sat, 21 Nov 2026 01:55:46 GMT")]
    given = parts(*headers, method="PUT", path="/shop/orders", query=[("timeout", "3"), ("comp", "acl")])
    [text, *_] = texts_to_sign(Credential("SharedKeyLite", "shop", ""), given)
    assert text == "PUT\nm\napplication/xml\nSat, 21 Nov 2026 01:55:46 GMT\n/shop/shop/orders?comp=acl"


@pytest.mark.parametrize(("version", "line"), [("2015-02-20", "0"), ("2015-02-21", ""), ("2026-10-06", "")])
def test_a_content_length_of_zero_is_signed_by_old_versions_only(version, line):
    given = parts(DATE, ("x-ms-version", version), ("content-length", "0"))
    [text, *_] = texts_to_sign(Credential("SharedKey", "shop", ""), given)
    assert text.split("\n")[3] == line


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("x-ms-meta-a_b", "x-ms-meta-a1"),
        ("x-ms-meta-ab", "x-ms-meta-a-b"),
        ("x-ms-metab", "x-ms-meta-c"),
        ("x-ms-metab", "x-ms-meta-b"),
        ("x-ms-meta-a", "x-ms-meta-aa"),
        ("x-ms-meta-ab-c", "x-ms-meta-a-bc"),
    ],
)
def test_headers_may_be_signed_in_the_order_of_the_sdk(smaller, larger):
    """QS-909. The second place is the order by weight."""
    headers = [(larger, "1"), (smaller, "2"), DATE]
    given = parts(*headers)
    by_weight = list(texts_to_sign(Credential("SharedKey", "shop", ""), given))[1]
    assert by_weight.index(f"{smaller}:2\n") < by_weight.index(f"{larger}:1\n")
    shared_key.check_signature(signed("SharedKey", given, place=1), given, [KEY])


@given(st.lists(st.text("ab1_-'.", max_size=6), min_size=2, max_size=2, unique=True))
def test_the_order_by_weight_is_that_of_the_sdk(names):
    from azure.storage.queue._shared.authentication import compare  # private: the independent statement of the order

    first, second = (f"x-ms-{name}" for name in names)
    ours = shared_key.by_weight(first), shared_key.by_weight(second)
    assert (ours[0] > ours[1]) - (ours[0] < ours[1]) == compare(first, second)


@pytest.mark.parametrize("scheme", ["SharedKey", "SharedKeyLite"])
@pytest.mark.parametrize("place", [0, -1])
def test_each_key_of_the_account_and_each_form_of_the_secondary_path_is_accepted(scheme, place):
    given = parts(path="/shop-secondary/orders")
    shared_key.check_signature(signed(scheme, given, place=place), given, [OTHER, KEY])


@pytest.mark.parametrize(
    "changed",
    [
        parts(method="PUT"),
        parts(path="/shop/other/messages"),
        parts(query=[("numofmessages", "2")]),
        parts(DATE, ("x-ms-meta-a", "b")),
        parts(DATE, ("content-type", "text/plain")),
    ],
)
def test_a_changed_request_is_refused_with_the_text_to_sign(changed):
    with pytest.raises(AuthenticationFailed, match="The text to sign is '(GET|PUT)") as refused:
        shared_key.check_signature(signed("SharedKey", parts()), changed, [KEY])
    assert (refused.value.status, refused.value.code) == (403, "AuthenticationFailed")
    assert KEY not in str(refused.value)


def test_a_wrong_key_is_refused():
    with pytest.raises(AuthenticationFailed):
        shared_key.check_signature(signed("SharedKey", parts(), key=OTHER), parts(), [KEY])


@pytest.mark.parametrize(
    "header", ["", "SharedKey", "SharedKey shop", "SharedKey shop:", "Basic x:y", "SharedKey shop:nobase64", "\u00e9"]
)
def test_a_malformed_header_is_refused(header):
    with pytest.raises(InvalidAuthenticationInfo, match="must be 'SharedKey ACCOUNT:SIGNATURE'"):
        shared_key.parse(header)


def test_a_header_is_read():
    signature = shared_key.sign("x", KEY)
    assert shared_key.parse(f" SharedKeyLite  shop:{signature}") == Credential("SharedKeyLite", "shop", signature)


@pytest.mark.parametrize(("minutes", "is_fresh"), [(0, True), (15, True), (-15, True), (16, False), (-16, False)])
def test_a_request_is_valid_for_fifteen_minutes(minutes, is_fresh):
    """QS-920."""
    given, now = parts(("Date", "Sat, 21 Nov 2026 02:00:00 GMT")), NOW + timedelta(minutes=minutes)
    if is_fresh:
        shared_key.check_date(given, now)
    else:
        with pytest.raises(AuthenticationFailed, match="Check the clock of the client"):
            shared_key.check_date(given, now)


def test_a_request_without_a_date_is_refused():
    with pytest.raises(AuthenticationFailed, match="send the header x-ms-date"):
        shared_key.check_date(parts(("x-ms-version", "2026-10-06")), NOW)
    with pytest.raises(InvalidAuthenticationInfo, match="must be such as"):
        shared_key.check_date(parts(("x-ms-date", "2026-11-21T02:00:00Z")), NOW)


@pytest.mark.parametrize(
    ("key", "is_key"), [(KEY, True), ("A" * 43 + "=", True), ("", False), ("A" * 20, False), ("*" * 44, False)]
)
def test_a_key_is_the_base64_of_32_to_64_bytes(key, is_key):
    assert shared_key.is_key(key) is is_key


def test_a_key_is_kept_as_base64_is_written():
    """So another spelling of the published key is the published key, too."""
    spelled = shared_key.PUBLISHED_KEY.replace("Gw==", "Gx==")
    assert spelled != shared_key.PUBLISHED_KEY and checked_key("primary", spelled) == shared_key.PUBLISHED_KEY
