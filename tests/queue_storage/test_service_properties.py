"""The properties of a queue service: what can be stored, which CORS rule allows a request, and how they read."""

import pytest

from broker_core.common.errors import InvalidArgument
from broker_core.queue_storage.rules.service_properties import (
    CorsRule,
    Logging,
    Metrics,
    Retention,
    ServiceProperties,
    as_json,
    check,
    from_json,
    rule_for,
)

SHOP = CorsRule(("https://shop.example",), ("GET", "PUT"), ("x-ms-*", "accept"), ("*",), 60)
ALL = CorsRule(("*",), ("GET",))


@pytest.mark.parametrize(
    ("properties", "name", "problem"),
    [
        ({"cors": (SHOP,) * 6}, "Cors", "has 6 rules; at most 5 are allowed"),
        ({"cors": (CorsRule((), ("GET",)),)}, "AllowedOrigins", "at least one origin"),
        ({"cors": (CorsRule(("*",), ()),)}, "AllowedMethods", "at least one method"),
        ({"cors": (CorsRule(("*",), ("get",)),)}, "AllowedMethods", "'get' must be one of DELETE, GET"),
        ({"cors": (CorsRule(("*",), ("GET",), max_age_seconds=-1),)}, "MaxAgeInSeconds", "-1 must be 0 to"),
        ({"cors": (CorsRule(("*",), ("GET",), max_age_seconds=2**31),)}, "MaxAgeInSeconds", "must be 0 to 2,147,483,647"),
        ({"cors": (CorsRule(("*",), ("GET",), ("a*", "b*", "c*")),)}, "AllowedHeaders", "more than 64 names or 2 prefixes"),
        ({"cors": (CorsRule(("*",), ("GET",), (), ("x",) * 65),)}, "ExposedHeaders", "more than 64 names or 2 prefixes"),
        ({"cors": (CorsRule(("x" * 2048,), ("GET",)),)}, "Cors", "2,051 characters together; at most 2,048"),
        ({"cors": (CorsRule(("a\x00",), ("GET",)),)}, "CorsRule", "NUL"),
        ({"cors": (CorsRule("http://a", ("GET",)),)}, "CorsRule", "must be a tuple"),  # type: ignore[arg-type]
        ({"logging": Logging(retention=Retention(0))}, "Days", "0 of a retention policy must be 1 to 365"),
        ({"minute_metrics": Metrics(retention=Retention(366))}, "Days", "366 of a retention policy must be 1 to 365"),
        ({"hour_metrics": Logging()}, "properties", "must be a Metrics"),
        ({"logging": Logging(read=1)}, "read", "must be true or false"),  # type: ignore[arg-type]
    ],
)
def test_properties_that_cannot_be_stored(properties, name, problem):
    with pytest.raises(InvalidArgument, match=problem) as refused:
        check(ServiceProperties(**properties))
    assert refused.value.name == name


def test_properties_are_stored_as_json_and_what_is_missing_has_its_default():
    properties = ServiceProperties(Logging(read=True, retention=Retention(7)), Metrics(enabled=True), cors=(SHOP,))
    assert from_json(as_json(check(properties))) == properties
    assert from_json({}) == ServiceProperties()


@pytest.mark.parametrize(
    ("origin", "method", "headers", "rule"),
    [
        ("https://SHOP.example", "PUT", ["X-Ms-Date", "accept"], SHOP),
        ("https://shop.example", "PUT", ["authorization"], None),
        ("https://shop.example", "GET", [], SHOP),
        ("https://other.example", "GET", [], ALL),
        ("https://other.example", "PUT", [], None),
    ],
)
def test_the_first_rule_that_allows_a_request_is_used(origin, method, headers, rule):
    assert rule_for((SHOP, ALL), origin, method, headers) == rule


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (SHOP, "GET, PUT from https://shop.example; allows x-ms-*, accept; exposes *; cached for 60 s"),
        (ALL, "GET from *; cached for 0 s"),
        (Logging(), "off; kept"),
        (Logging(read=True, delete=True, retention=Retention(1)), "delete, read; kept for 1 day"),
        (Metrics(), "off; kept"),
        (Metrics(enabled=True, include_apis=True, retention=Retention(30)), "on, by operation; kept for 30 days"),
    ],
)
def test_properties_in_words(value, words):
    assert str(value) == words
