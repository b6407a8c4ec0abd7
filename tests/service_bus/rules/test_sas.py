"""Shared-access tokens: vectors made apart from the code under test, and every way a token can be wrong."""

import base64
import hashlib
import hmac
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.service_bus.http.errors import wire_error
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.sas import TokenRefused

KEY = "c2VjcmV0LWtleS10aGF0LWxvb2tzLWxpa2UtYmFzZTY0"
EXPIRES = 1_800_000_000
BEFORE = EXPIRES - 1
URI = "http://localhost:8000/servicebus/demo/orders"

# printf 'http%%3A%%2F%%2Flocalhost%%3A8000%%2Fservicebus%%2Fdemo%%2Forders\n1800000000' |
#     openssl dgst -sha256 -hmac "$KEY" -binary | base64
OPENSSL_SIGNATURE = "UqbG9ur1IdktWNVOMJuZIyeMDByPwOn+lRl8DgYl85k="


def python_recipe(uri: str, name: str, key: str, expires: int) -> str:
    """The well-known recipe: quote_plus everywhere, another order of the fields."""
    encoded = urllib.parse.quote_plus(uri)
    signature = base64.b64encode(hmac.new(key.encode(), f"{encoded}\n{expires}".encode(), hashlib.sha256).digest())
    return f"SharedAccessSignature sr={encoded}&sig={urllib.parse.quote_plus(signature)}&se={expires}&skn={name}"


def javascript_recipe(uri: str, name: str, key: str, expires: int) -> str:
    """As the JavaScript admin client: lower case throughout, lower-case escapes, sr last."""
    encoded = urllib.parse.quote(uri.lower(), safe="-_.!~*'()").lower()
    signature = base64.b64encode(hmac.new(key.encode(), f"{encoded}\n{expires}".encode(), hashlib.sha256).digest()).decode()
    return f"SharedAccessSignature sig={urllib.parse.quote(signature, safe='')}&se={expires}&skn={name}&sr={encoded}"


def refusal_of(
    authorization, *, keys=(KEY,), host="localhost:8000", path="/servicebus/demo/orders", now=BEFORE
) -> TokenRefused | None:
    try:
        token = sas.parse(authorization)
        if not sas.signed_by(token, keys):
            return sas.wrong_signature(token)
        sas.check_claims(token, host=host, path=path, now=now)
    except TokenRefused as exc:
        return exc
    return None


def test_signature_agrees_with_openssl():
    assert sas.parse(sas.sign(URI, "Root", KEY, EXPIRES)).signature == OPENSSL_SIGNATURE


@pytest.mark.parametrize("recipe", [sas.sign, python_recipe, javascript_recipe])
def test_common_recipes_are_accepted(recipe):
    assert refusal_of(recipe(URI, "Root", KEY, EXPIRES)) is None


def test_either_key_of_a_policy_signs():
    assert refusal_of(sas.sign(URI, "Root", KEY, EXPIRES), keys=("another", KEY)) is None


@pytest.mark.parametrize(
    ("resource", "host", "path"),
    [
        ("sb://localhost/servicebus/demo/", "localhost:8000", "/servicebus/demo/orders"),
        ("https://LOCALHOST:5671/ServiceBus/Demo/Orders", "localhost:8000", "/servicebus/demo/orders"),
        ("localhost:8000/servicebus/demo/a", "localhost:8000", "/servicebus/demo/a/b/c"),
        ("amqp://[::1]:5672/servicebus/demo", "[::1]:8000", "/servicebus/demo/orders"),
        ("http://localhost/servicebus/demo/with%20space", "localhost", "/servicebus/demo/with space"),
        ("http://localhost/", "localhost", "/servicebus/demo/orders"),
    ],
)
def test_token_covers_nested_addresses_with_any_scheme_port_and_case(resource, host, path):
    assert refusal_of(sas.sign(resource, "Root", KEY, EXPIRES), host=host, path=path) is None


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (URI, "/servicebus/demo/orders2"),
        (URI, "/servicebus/demo"),
        ("http://localhost:8000/servicebus/demo", "/servicebus/demo2/orders"),
        ("http://elsewhere/servicebus/demo", "/servicebus/demo/orders"),
        ("http://localhost.evil/servicebus/demo", "/servicebus/demo/orders"),
    ],
)
def test_foreign_token_is_refused_with_both_addresses(resource, path):
    refusal = refusal_of(sas.sign(resource, "Root", KEY, EXPIRES), path=path)
    assert refusal.sub_code == TokenRefused.AUDIENCE
    assert resource in str(refusal) and path in str(refusal)


@pytest.mark.parametrize(("now", "refused"), [(EXPIRES - 0.001, False), (EXPIRES, True), (EXPIRES + 1, True)])
def test_token_ends_at_its_expiry(now, refused):
    refusal = refusal_of(sas.sign(URI, "Root", KEY, EXPIRES), now=now)
    assert (refusal is not None) == refused
    if refused:
        assert refusal.sub_code == TokenRefused.EXPIRED and "2027-01-15T08:00:00Z" in str(refusal)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token.replace("se=1800000000", "se=1900000000"),
        lambda token: token.replace("orders", "others"),
        lambda token: token.replace("sig=", "sig=A"),
        lambda token: token.replace("sr=http%3A", "sr=HTTP%3A"),
        lambda token: token.replace("sig=", "sig=%FF"),
    ],
)
def test_changed_token_has_a_wrong_signature(change):
    assert refusal_of(change(sas.sign(URI, "Root", KEY, EXPIRES))).sub_code == TokenRefused.SIGNATURE


def test_wrong_key_and_unknown_policy_have_the_same_error():
    token = sas.sign(URI, "Root", KEY, EXPIRES)
    wrong, none = refusal_of(token, keys=("x",)), refusal_of(token, keys=())
    assert str(wrong) == str(none) and wrong.sub_code == TokenRefused.SIGNATURE


@pytest.mark.parametrize("prefix", ["Bearer ", "bearer  "])
def test_a_token_may_be_sent_as_a_bearer_token(prefix):
    assert refusal_of(prefix + sas.sign(URI, "Root", KEY, EXPIRES)) is None


@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        ("", "no token"),
        ("Bearer abc", "Bearer"),
        ("Bearer SharedAccessSignatureX abc", "Bearer"),
        ("Bearer Bearer SharedAccessSignature sr=a&sig=b&se=1&skn=c", "Bearer"),
        ("Bearer SharedAccessSignature", "sr, sig, se, skn"),
        ("Basic abc", "'Basic'"),
        ("x" * 41 + " abc", f"'{'x' * 40}'"),
        ("SharedAccessSignature", "sr, sig, se, skn"),
        ("SharedAccessSignature sr=a&sig=b&se=1", "no skn"),
        ("SharedAccessSignature sr=a&sig=b&se=1&skn=c&se=2", "twice"),
        ("SharedAccessSignature sr=a&sig=b&se=soon&skn=c", "'soon'"),
        ("SharedAccessSignature sr=a&sig=b&se=²&skn=c", "1970"),
    ],
)
def test_malformed_header_is_refused_with_the_reason(authorization, says):
    refusal = refusal_of(authorization)
    assert says in str(refusal)
    assert wire_error(refusal).status == 401 and wire_error(refusal).sub_code == TokenRefused.MISSING


@given(st.text(max_size=60))
def test_any_header_is_a_token_or_a_refusal(text):
    for header in (text, f"SharedAccessSignature {text}", f"SharedAccessSignature sr={text}&sig=a&se=1&skn=b"):
        refusal_of(header)


@given(st.text(max_size=60), st.text(max_size=30), st.text(max_size=30))
def test_any_signed_resource_is_checked_without_an_error(resource, host, path):
    assert sas.covers(resource, host, path) in (True, False)


@given(
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=40).filter(lambda key: key.isprintable()),
    st.integers(1, 10**12),
)
def test_signed_token_round_trips(policy, key, expires):
    token = sas.parse(sas.sign(URI, policy, key, expires))
    assert (token.policy, token.expires) == (policy, str(expires))
    assert sas.signed_by(token, [key]) and not sas.signed_by(token, [key + "x"])


def test_a_refusal_shows_the_first_40_characters_of_an_expiry():
    token = f"SharedAccessSignature sr=x&sig=y&skn=z&se={'9' * 41}"
    with pytest.raises(TokenRefused, match="se='9{40}' must be"):
        sas.parse(token)
