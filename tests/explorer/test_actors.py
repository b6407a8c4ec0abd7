"""One identity for each actor: its name, icon and page, and that all pages show the same one."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from django.urls import resolve

from broker_core.common.actors import PROTOCOLS, key_holder, parsed, spellings
from broker_core.common.types import Actor
from explorer.analysis.jobs.kinds import KEYS
from explorer.frames.actors import BROKER, ActorKind, ShownActor, shown_actor
from explorer.frames.presenters import actor_name


@pytest.mark.parametrize(
    ("stored", "kind", "name", "client"),
    [
        ("process:orders-1", ActorKind.PROCESS, "orders-1", ""),
        ("process:celery@host:4711", ActorKind.PROCESS, "celery@host:4711", ""),
        ("key:web-shop", ActorKind.KEY, "web-shop", ""),
        ("key:web-shop@10.0.0.7", ActorKind.KEY, "web-shop", "10.0.0.7"),
        ("key:web-shop@till 3@north", ActorKind.KEY, "web-shop", "till 3@north"),
        ("http:web-shop@10.0.0.7", ActorKind.KEY, "web-shop", "10.0.0.7"),
        ("amqp:web-shop@till 3@north", ActorKind.KEY, "web-shop", "till 3@north"),
        ("generated:http:web-shop@10.0.0.7", ActorKind.KEY, "web-shop", "10.0.0.7"),
        ("http:web-shop", ActorKind.CLIENT, "http:web-shop", ""),
        ("user:ada", ActorKind.USER, "ada", ""),
        ("user:ada@example.org", ActorKind.USER, "ada@example.org", ""),
        ("process:broker", ActorKind.BROKER, "broker", ""),
        ("", ActorKind.BROKER, "broker", ""),
        (None, ActorKind.BROKER, "broker", ""),
        ("process:schedule", ActorKind.TASK, "schedule", ""),
        ("scanner 1", ActorKind.CLIENT, "scanner 1", ""),  # a connection's name, of events of earlier versions
        ("10.0.0.7:5001 -> 10.0.0.1:5672", ActorKind.CLIENT, "10.0.0.7:5001 -> 10.0.0.1:5672", ""),
        ("user:", ActorKind.CLIENT, "user:", ""),
        ("key:@10.0.0.7", ActorKind.KEY, "@10.0.0.7", ""),
        ("generated:process:orders-1", ActorKind.PROCESS, "orders-1", ""),
        ("generated:key:web-shop", ActorKind.KEY, "web-shop", ""),
        ("generated:orders-consumer-1", ActorKind.CLIENT, "orders-consumer-1", ""),
        ("generated:broker", ActorKind.BROKER, "broker", ""),
    ],
)  # fmt: skip
def test_a_stored_actor_is_one_identity(stored, kind, name, client):
    actor = shown_actor(stored)
    assert (actor.kind, actor.name, actor.client) == (kind, name, client)
    assert actor == ShownActor(kind, name)  # the client is no part of the identity
    assert shown_actor(actor.stored) == actor
    assert actor.icon and actor.words


def test_the_words_of_a_key_say_who_used_it_and_how():
    words = [shown_actor(text).words for text in ("key:app", "key:app@10.0.0.7", "http:app@10.0.0.7")]
    assert words == ["access key", "access key, used from 10.0.0.7", "access key, used from 10.0.0.7 over HTTP"]
    assert parsed(key_holder("http", "app", "10.0.0.7")) == parsed("http:app@10.0.0.7")


def test_spark_knows_how_actors_of_keys_are_stored():
    assert ("key", *PROTOCOLS) == KEYS


def test_the_broker_is_one_actor():
    assert shown_actor("process:broker") == shown_actor(None) == BROKER


@pytest.mark.parametrize(
    ("name", "found", "missed"),
    [
        ("process:web-1", ["process:web-1", "generated:process:web-1"], ["web-1", "user:web-1", "process:web-10"]),
        (
            "key:app",
            ["key:app", "http:app@10.0.0.7", "amqp:app@x", "key:app@10.0.0.7", "generated:key:app"],
            ["key:app2", "http:app2@x"],
        ),
        ("app", ["app", "key:app", "http:app@10.0.0.7", "user:app", "process:app", "generated:app"], ["app2", "key:app2"]),
    ],
)
def test_an_actor_is_found_however_it_is_stored(name, found, missed):
    texts, prefixes = spellings(name)

    def matches(stored):
        return stored in texts or any(stored.startswith(prefix) for prefix in prefixes)

    assert all(map(matches, found)) and not any(map(matches, missed))
    assert {str(parsed(stored)) for stored in found} >= {str(parsed(name))}


def test_a_sentence_says_that_an_actor_is_the_reader():
    ada = Actor("user", "ada")
    assert actor_name("user:ada", ada) == "ada (you)" and actor_name("user:vera", ada) == "vera"
    assert actor_name(None) == "" and actor_name("key:app@10.0.0.7") == "app"


@pytest.mark.parametrize("name", ["orders-1", "a/b", "with space", "..", "a/../b", "1.2.3.4:1 -> 1.2.3.4:2", "two\nlines", "~2F"])
def test_the_address_of_any_name_leads_back_to_it(name):
    actor = ShownActor(ActorKind.CLIENT, name)
    assert resolve(unquote(actor.url)).kwargs == {"kind": "client", "name": name}
