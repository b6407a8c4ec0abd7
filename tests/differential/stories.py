"""What happens to messages, told to either broker. Each story tells facts; the test compares them by name.

The waits are long enough for a server that is busy, and short enough to be waited for: a fact never hangs on less than 0.3 s.
"""

from __future__ import annotations

from decimal import Decimal

from .brokers import Broker, Seen
from .comparison import Stories

story = STORIES = Stories()


def bodies(found: list[Seen]) -> list[str]:
    return [seen.body for seen in found]


# Message time-to-live


@story
def the_lower_time_to_live_counts(b: Broker) -> None:
    for name, arguments, expiration in (
        ("by message", {}, "300"),
        ("by queue", {"message_ttl": 300}, None),
        ("message lower", {"message_ttl": 60000}, "300"),
        ("queue lower", {"message_ttl": 300}, "60000"),
        ("neither is over", {"message_ttl": 60000}, "60000"),
    ):
        b.queue(name, **arguments)
        b.publish("m", key=name, **({"expiration": expiration} if expiration else {}))
    before = {name: b.count(name) for name in ("by message", "by queue", "message lower", "queue lower", "neither is over")}
    b.tell("before", before)
    b.wait(0.8)
    b.tell("after", {name: b.count(name) for name in before})
    b.tell("got", {name: b.read_out(name) for name in before})


@story
def a_time_of_nothing(b: Broker) -> None:
    b.queue("dead")
    b.queue("q", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    b.tell("mandatory", b.publish("1", mandatory=True))
    b.queue("own")
    b.tell("own", b.publish("2", key="own", expiration="0"))
    b.wait(0.4)
    b.tell("counts", [b.count("q"), b.count("own"), b.count("dead")])
    b.tell("deaths", b.one("dead").deaths)
    b.consume("c", "q", prefetch=2)
    for i in range(4):
        b.publish(f"m{i}")
    b.tell("delivered", bodies(b.received("c")))
    b.wait(0.4)
    b.tell("the others died", b.read_out("dead"))
    b.close_channel("c")
    b.wait(0.4)
    b.tell("returned ones died", sorted(b.read_out("dead")))


@story
def expired_behind_the_head(b: Broker) -> None:
    b.queue()
    b.publish("long", expiration="60000")
    b.publish("short", expiration="300")
    b.wait(0.8)
    b.tell("both are counted", b.count())
    b.tell("the head", b.one().body)
    b.tell("then nothing", b.get(no_ack=True))
    b.tell("count", b.count())


@story
def a_requeue_keeps_the_expiry(b: Broker) -> None:
    b.queue(message_ttl=800)
    b.publish("a")
    seen = b.get()
    b.wait(0.3)
    b.nack(seen.tag, requeue=True)
    again = b.get()
    b.tell("redelivered", (again.body, again.redelivered))
    b.wait(0.8)
    b.tell("held ones do not expire", b.count())
    b.nack(again.tag, requeue=True)
    b.wait(0.3)
    b.tell("returned after its time", b.get())
    b.publish("b")
    held = b.get()
    b.wait(1.2)
    b.ack(held.tag)
    b.tell("acknowledged after its time", b.count())


@story
def copies_live_apart(b: Broker) -> None:
    b.queue("brief", message_ttl=300)
    b.queue("long")
    b.exchange("x", "fanout")
    b.bind("brief", "x")
    b.bind("long", "x")
    b.publish("m", "x", "")
    b.wait(0.8)
    b.tell("counts", [b.count("brief"), b.count("long")])


@story
def expirations_are_checked_before_routing(b: Broker) -> None:
    b.queue()
    for text in ("abc", "", " 5", "1.5", "1000 ", "-1", "315360000001", "+60000", "0060000", "5ms", "+", "1e3"):
        b.tell(text, b.publish("m", expiration=text))
        b.tell(f"{text} unroutable", b.publish("m", key="nowhere", expiration=text))
    b.tell("kept as given", [b.one().properties for _ in range(2)])


@story
def priorities_and_time(b: Broker) -> None:
    b.queue(max_priority=5)
    for body, priority in (("none", None), ("1", 1), ("9", 9), ("5", 5), ("0", 0), ("3", 3)):
        b.publish(body, **({} if priority is None else {"priority": priority}))
    b.tell("order", b.read_out())
    b.publish("low", priority=1, expiration="300")
    b.publish("high", priority=5, expiration="60000")
    b.wait(0.8)
    b.tell("counted", b.count())
    b.tell("read", b.read_out())


@story
def waiting_behind_a_held_one(b: Broker) -> None:
    b.queue(message_ttl=500)
    b.consume("c", prefetch=1)
    for body in "abc":
        b.publish(body)
    held = b.received("c")
    b.wait(1)
    b.tell("held", bodies(held))
    b.tell("waiting ones are gone", b.count())
    b.settle("c", held[0].tag)
    b.tell("nothing follows", bodies(b.received("c")))


# Policies


@story
def policies_set_the_time(b: Broker) -> None:
    b.policy("ttl", {"message-ttl": 300}, pattern="^p")
    b.queue("p-plain")
    b.queue("p-longer", message_ttl=60000)
    b.policy("long", {"message-ttl": 60000}, pattern="^l")
    b.queue("l-shorter", message_ttl=300)
    b.queue("other")
    names = ("p-plain", "p-longer", "l-shorter", "other")
    for name in names:
        b.publish("m", key=name)
    b.wait(0.8)
    b.tell("argument and policy", {name: b.count(name) for name in names})
    b.policy("cap", {"message-ttl": 300}, pattern="^l-", operator=True)
    b.queue("l-capped")
    b.publish("m", key="l-capped")
    b.wait(0.8)
    b.tell("operator policy", b.count("l-capped"))


@story
def one_policy_applies(b: Broker) -> None:
    b.policy("low", {"message-ttl": 300, "max-length": 1}, priority=1)
    b.policy("high", {"max-length": 2}, priority=5)
    b.queue()
    for body in "abc":
        b.publish(body)
    b.wait(0.8)
    b.tell("the highest alone", b.read_out())
    b.policy("exchanges", {"alternate-exchange": "x", "max-length": 1}, priority=9, apply_to="exchanges")
    for body in "abc":
        b.publish(body)
    b.tell("exchanges are other objects", b.read_out())


@story
def policies_that_do_not_fit_a_type(b: Broker) -> None:
    b.queue("classic")
    b.queue("quorum", queue_type="quorum")
    for key, value in (
        ("delivery-limit", 5),
        ("dead-letter-strategy", "at-most-once"),
        ("queue-mode", "lazy"),
        ("queue-version", 2),
        ("ha-mode", "all"),
        ("queue-master-locator", "min-masters"),
        ("max-in-memory-length", 5),
        ("max-age", "1D"),
        ("alternate-exchange", "ae"),
    ):
        b.policy("p", {key: value, "max-length": 1})
        for name in ("classic", "quorum"):
            for body in "abc":
                b.publish(body, key=name)
        b.wait(0.4)
        b.tell(key, {name: len(b.read_out(name)) for name in ("classic", "quorum")})


@story
def a_new_time_by_policy(b: Broker) -> None:
    b.queue()
    b.publish("old")
    b.policy("ttl", {"message-ttl": 300})
    b.wait(0.8)
    b.tell("a message without a time", b.read_out())
    b.policy("ttl", {"message-ttl": 60000})
    b.publish("long")
    b.policy("ttl", {"message-ttl": 300})
    b.wait(0.8)
    b.tell("a shorter time", b.read_out())
    b.publish("short")
    b.policy("ttl", {"message-ttl": 60000})
    b.wait(0.8)
    b.tell("a longer time", b.read_out())
    b.publish("short")
    b.policy("ttl", {"message-ttl": 300})
    b.publish("shorter")
    b.delete_policy("ttl")
    b.publish("for ever")
    b.wait(0.8)
    b.tell("no time any more", b.read_out())


@story
def a_limit_by_policy_holds_at_once(b: Broker) -> None:
    b.queue()
    for i in range(10):
        b.publish(str(i))
    b.policy("limit", {"max-length": 3})
    b.tell("trimmed", b.read_out())
    b.policy("limit", {"max-length": 100})
    b.policy("cap", {"max-length": 2}, operator=True)
    for i in range(4):
        b.publish(str(i))
    b.tell("the lesser of both", b.read_out())
    b.queue("own", max_length=1)
    for i in range(4):
        b.publish(str(i), key="own")
    b.tell("the least of all", b.read_out("own"))


@story
def a_dead_letter_exchange_by_policy(b: Broker) -> None:
    b.queue("by policy")
    b.queue("by argument")
    b.queue("q", dead_letter_exchange="", dead_letter_routing_key="by argument")
    b.queue("r")
    b.policy("dlx", {"dead-letter-exchange": "", "dead-letter-routing-key": "by policy"}, pattern="^[qr]$")
    for name in ("q", "r"):
        b.publish(name, key=name)
        b.reject(b.get(name).tag, requeue=False)
    b.tell("who gets whose", [b.read_out("by policy"), b.read_out("by argument")])
    b.tell("declared again", b.queue("r"))


@story
def bad_policies(b: Broker) -> None:
    for name, changes in (
        ("pattern", {"pattern": "("}),
        ("class", {"pattern": "["}),
        ("bracket", {"pattern": "a)"}),
        ("escape", {"pattern": "a\\"}),
        ("nothing to repeat", {"pattern": "*a"}),
        ("priority", {"priority": "1"}),
        ("none", {"definition": {}}),
        ("unknown", {"definition": {"bogus": 1}}),
        ("max-priority", {"definition": {"max-priority": 1}}),
        ("ttl", {"definition": {"message-ttl": -1}}),
        ("expires", {"definition": {"expires": 0}}),
        ("max-length", {"definition": {"max-length": -1}}),
        ("max-length-bytes", {"definition": {"max-length-bytes": -1}}),
        ("overflow", {"definition": {"overflow": "bogus"}}),
        ("dlx", {"definition": {"dead-letter-exchange": 5}}),
        ("dlrk", {"definition": {"dead-letter-routing-key": 5}}),
        ("strategy", {"definition": {"dead-letter-strategy": "bogus"}}),
        ("limit", {"definition": {"delivery-limit": -1}}),
        ("ae", {"definition": {"alternate-exchange": 5}}),
        ("mode", {"definition": {"queue-mode": "bogus"}}),
        ("version", {"definition": {"queue-version": 5}}),
        ("apply-to", {"apply_to": "x"}),
        ("operator dlx", {"definition": {"dead-letter-exchange": "x"}, "operator": True}),
        ("operator overflow", {"definition": {"overflow": "drop-head"}, "operator": True}),
        ("a long life", {"definition": {"message-ttl": 10100000000000}}),
        ("a fraction", {"priority": 1.5}),
        ("negative", {"priority": -3}),
        ("where it has no effect", {"definition": {"alternate-exchange": "x"}}),
        ("a key without an exchange", {"definition": {"dead-letter-routing-key": "x"}}),
    ):
        b.tell(name, b.policy("p", **{"definition": {"expires": 60000}, **changes}))


# Dead-lettering


@story
def what_a_dead_letter_is(b: Broker) -> None:
    b.queue("dead")
    b.exchange("dlx", "fanout")
    b.bind("dead", "dlx")
    b.queue(dead_letter_exchange="dlx", max_length=5)
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "id",
        "type": "t",
        "app_id": "a",
        "expiration": "60000",
    }
    b.publish("m", headers={"own": 1, "CC": ["cc"]}, **properties)
    b.reject(b.get().tag, requeue=False)
    dead = b.one("dead")
    b.tell("properties", dead.properties)
    b.tell("where from", (dead.exchange, dead.key, dead.redelivered))
    b.tell("deaths", dead.deaths)
    b.tell("headers", sorted(dead.headers))
    b.tell("own headers", {name: dead.headers[name] for name in dead.headers if name == "own" or "first" in name})
    b.tell("CC is kept", dead.headers.get("CC"))
    b.queue("keyed", dead_letter_exchange="dlx", dead_letter_routing_key="dk")
    b.publish("m", key="keyed", headers={"CC": ["cc"]})
    b.reject(b.get("keyed").tag, requeue=False)
    dead = b.one("dead")
    b.tell("with a key", (dead.exchange, dead.key, "CC" in dead.headers, dead.deaths))


@story
def dead_letters_without_an_exchange(b: Broker) -> None:
    b.queue(dead_letter_exchange="gone")
    b.publish("m")
    b.reject(b.get().tag, requeue=False)
    b.tell("dropped", b.count())
    b.queue("none")
    b.publish("m", key="none")
    b.reject(b.get("none").tag, requeue=False)
    b.tell("without one", b.count("none"))


@story
def a_chain_of_deaths(b: Broker) -> None:
    b.queue("end")
    b.queue("b", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="end")
    b.queue("a", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="b")
    b.publish("m", key="a", expiration="100")
    b.wait(1.5)
    b.tell("deaths", b.one("end").deaths)


@story
def a_retry_loop(b: Broker) -> None:
    b.queue("wait", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="work")
    b.queue("work", dead_letter_exchange="", dead_letter_routing_key="wait")
    b.publish("m", key="work")
    for i in range(3):
        seen = b.get("work")
        b.tell(f"round {i}", seen.deaths)
        b.reject(seen.tag, requeue=False)
        b.wait(0.9)
    b.tell("still there", b.count("work"))


@story
def cycles_end(b: Broker) -> None:
    b.queue("self", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="self")
    b.queue("a", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="b")
    b.queue("b", message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="a")
    b.queue("full", max_length=1, dead_letter_exchange="", dead_letter_routing_key="full")
    for name in ("self", "a"):
        b.publish("m", key=name)
    for body in "xyz":
        b.publish(body, key="full")
    b.wait(1.5)
    b.tell("gone", [b.count(name) for name in ("self", "a", "b")])
    b.tell("by length", b.read_out("full"))
    b.queue("rejected", dead_letter_exchange="", dead_letter_routing_key="rejected")
    b.publish("m", key="rejected")
    for _ in range(3):
        b.reject(b.get("rejected").tag, requeue=False)
    b.tell("by rejection it goes on", b.one("rejected").deaths)


@story
def x_death_from_clients(b: Broker) -> None:
    b.queue("dead")
    b.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    for name, header in (
        ("counted on", [{"queue": "q", "reason": "rejected", "count": 4, "exchange": "e", "routing-keys": ["k"]}]),
        ("of another reason", [{"queue": "q", "reason": "expired", "count": 4, "exchange": "e", "routing-keys": ["k"]}]),
        ("a text", "garbage"),
        ("a number", 5),
    ):
        b.publish("m", headers={"x-death": header})
        b.reject(b.get().tag, requeue=False)
        dead = b.one("dead")
        b.tell(name, dead.deaths)
        b.tell(f"{name}: first", "x-first-death-queue" in dead.headers)


@story
def purging_and_deleting_kill_nothing(b: Broker) -> None:
    b.queue("dead")
    b.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "abc":
        b.publish(body)
    held = b.get()
    b.tell("purged", b.purge())
    b.nack(held.tag, requeue=True)
    b.tell("the held one stays", b.count())
    b.tell("deleted", b.delete_queue("q"))
    b.tell("dead", b.count("dead"))
    b.tell("deleted again", b.delete_queue("q"))


@story
def ways_of_dead_letters(b: Broker) -> None:
    for name in ("direct", "cc", "bcc", "twice", "ae", "short", "limited"):
        b.queue(name, **{"short": {"message_ttl": 300}, "limited": {"max_length": 1}}.get(name, {}))
    b.exchange("ae", "fanout")
    b.bind("ae", "ae")
    b.exchange("dlx", "direct", internal=True, arguments={"alternate-exchange": "ae"})
    for name, key in (("direct", "k"), ("cc", "cc"), ("bcc", "bcc"), ("twice", "k"), ("twice", "cc")):
        b.bind(name, "dlx", key)
    b.exchange("x", "fanout")
    b.queue(dead_letter_exchange="dlx")
    b.bind("q", "x")
    b.publish("m", "x", "k", headers={"CC": ["cc"], "BCC": ["bcc"]})
    b.reject(b.get().tag, requeue=False)
    b.tell("by key, CC and BCC", [b.count(name) for name in ("direct", "cc", "bcc", "twice")])
    b.tell("what it says", b.one("twice").deaths)
    b.publish("m", "x", "unbound")
    b.reject(b.get().tag, requeue=False)
    b.tell("an alternate exchange", b.count("ae"))
    b.exchange("to all", "fanout")
    for name in ("short", "limited"):
        b.bind(name, "to all")
    b.queue("source", dead_letter_exchange="to all")
    for body in "ab":
        b.publish(body, key="source", expiration="60000")
        b.reject(b.get("source").tag, requeue=False)
    b.tell("a limit there", b.read_out("limited"))
    b.wait(0.8)
    b.tell("a time there", b.count("short"))


@story
def order_of_deaths(b: Broker) -> None:
    b.queue("dead")
    b.queue(message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="dead")
    for i in range(20):
        b.publish(str(i))
    b.wait(0.8)
    b.tell("in order", b.read_out("dead"))


@story
def what_came_back_expires_in_its_place(b: Broker) -> None:
    b.queue("dead")
    b.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    b.publish("brief", expiration="500")
    b.publish("long", expiration="60000")
    b.publish("brief too", expiration="500")
    held = [b.get(), b.get()]
    b.wait(0.8)
    b.tell("the third is at the head", b.count())
    b.nack(held[1].tag, requeue=True)
    b.nack(held[0].tag, requeue=True)
    b.wait(0.3)
    b.tell("dead", sorted(b.read_out("dead")))
    b.tell("left", b.read_out())


@story
def properties_pass_through(b: Broker) -> None:
    b.queue()
    headers = {
        "text": "täxt",
        "whole": 5,
        "big": 2**40,
        "negative": -7,
        "yes": True,
        "nothing": None,
        "list": [1, "a", [True]],
        "table": {"a": {"b": 1}},
        "decimal": Decimal("1.25"),
    }
    properties = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "delivery_mode": 1,
        "priority": 200,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "",
        "type": "t",
        "app_id": "a",
    }
    b.publish("", headers=headers, **properties)
    seen = b.one()
    b.tell("headers", seen.headers)
    b.tell("properties", seen.properties)
    b.tell("body", seen.body)
    b.publish("plain")
    b.tell("none", [(m.properties, m.headers) for m in (b.one(),)])


# Length limits


@story
def drop_head(b: Broker) -> None:
    b.queue("dead")
    b.queue(max_length=3, dead_letter_exchange="", dead_letter_routing_key="dead")
    for i in range(5):
        b.tell(f"publish {i}", b.publish(str(i)))
    b.tell("dropped in order", b.read_out("dead"))
    b.tell("kept", b.read_out())
    b.queue("bytes", max_length_bytes=10)
    for body in ("12345", "678", "90123456789", "abc", "defgh", "ijk"):
        b.publish(body, key="bytes")
    b.tell("bytes", b.read_out("bytes"))
    b.queue("nothing", max_length=0)
    b.tell("nothing", [b.publish("m", key="nothing"), b.count("nothing")])
    b.queue("ready", max_length=2)
    for body in "ab":
        b.publish(body, key="ready")
    held = [b.get("ready"), b.get("ready")]
    for body in "cd":
        b.publish(body, key="ready")
    b.tell("unacknowledged ones do not count", b.count("ready"))
    for seen in held:
        b.nack(seen.tag, requeue=True)
    b.tell("after requeue", b.read_out("ready"))


@story
def dead_letters_at_a_short_queue(b: Broker) -> None:
    """Its consumer has what it has room for, before it is counted; the rest is too much, or has expired."""
    to_short = {"dead_letter_exchange": "", "dead_letter_routing_key": "short"}
    b.queue("last")
    for kind, arguments in (
        ("drop-head", {"max_length": 1}),
        ("drop-head to the last", {"max_length": 1, "dead_letter_exchange": "", "dead_letter_routing_key": "last"}),
        ("reject-publish", {"max_length": 1, "overflow": "reject-publish"}),
        ("nothing waits", {"message_ttl": 0, "dead_letter_exchange": "", "dead_letter_routing_key": "last"}),
        ("no room at all", {"max_length": 0}),
    ):
        for prefetch in (0, 2):
            b.queue("short", **arguments)
            b.queue("q", **to_short)
            b.consume("c", "short", prefetch=prefetch)
            for i in range(6):
                b.publish(str(i))
            for tag in [b.get("q").tag for _ in range(6)]:
                b.reject(tag, requeue=False)
            b.wait(0.4)
            delivered = bodies(b.received("c"))
            b.cancel("c")
            b.tell(f"{kind}, prefetch {prefetch}", (delivered, b.count("short"), b.read_out("last")))
            b.delete_queue("short")
            b.delete_queue("q")


@story
def what_is_too_much_twice(b: Broker) -> None:
    """From a queue that is full to another, by either overflow; with and without a consumer there."""
    b.queue("last")
    for overflow in ("drop-head", "reject-publish-dlx"):
        for prefetch in (None, 0, 2):
            b.queue("short", max_length=1, dead_letter_exchange="", dead_letter_routing_key="last")
            b.queue("q", max_length=1, overflow=overflow, dead_letter_exchange="", dead_letter_routing_key="short")
            if prefetch is not None:
                b.consume("c", "short", prefetch=prefetch)
            for i in range(6):
                b.publish(str(i))
            b.wait(0.4)
            delivered = [] if prefetch is None else bodies(b.received("c"))
            b.tell(f"{overflow}, prefetch {prefetch}", (delivered, b.count("q"), b.count("short"), b.read_out("last")))
            if prefetch is not None:
                b.cancel("c")
            b.delete_queue("short")
            b.delete_queue("q")


@story
def refusing_when_full(b: Broker) -> None:
    b.queue("dead")
    b.queue(max_length=1, overflow="reject-publish", dead_letter_exchange="", dead_letter_routing_key="dead")
    b.tell("publishes", [b.publish(str(i)) for i in range(3)])
    b.tell("kept", b.read_out())
    b.tell("not dead", b.count("dead"))
    b.queue("dlx", max_length=1, overflow="reject-publish-dlx", dead_letter_exchange="", dead_letter_routing_key="dead")
    b.tell("with dlx", [b.publish(str(i), key="dlx") for i in range(3)])
    b.tell("dead", [(seen.body, seen.deaths) for seen in (b.one("dead"), b.one("dead"))])
    b.exchange("x", "fanout")
    b.queue("roomy")
    b.bind("q", "x")
    b.bind("roomy", "x")
    b.tell("to two", [b.publish(str(i), "x", "") for i in range(2)])
    b.tell("the other keeps it", [b.read_out("q"), b.read_out("roomy")])


@story
def priorities_and_length(b: Broker) -> None:
    b.queue(max_priority=5, max_length=2)
    for priority in (5, 1, 3):
        b.publish(str(priority), priority=priority)
    b.tell("the head goes first", b.read_out())


# Queue expiry


@story
def queues_expire_for_want_of_use(b: Broker) -> None:
    for name in ("unused", "published", "gotten", "passive", "declared", "bound", "purged", "held", "consumed"):
        b.queue(name, expires=1500)
    b.publish("m", key="unused")
    b.publish("m", key="held")
    b.get("held")
    b.exchange("x", "fanout")
    b.consume("c", "consumed")
    b.wait(1)
    b.publish("m", key="published")
    b.get("gotten", no_ack=True)
    b.count("passive")
    b.queue("declared", expires=1500)
    b.bind("bound", "x")
    b.purge("purged")
    b.wait(1)
    b.cancel("c")
    for name in ("unused", "published", "bound", "purged", "held", "gotten", "passive", "declared"):
        b.tell(name, b.count(name))
    b.wait(1)
    b.tell("after its last consumer", b.count("consumed"))
    b.wait(2)
    b.tell("gone at last", b.count("consumed"))


@story
def expiry_by_policy(b: Broker) -> None:
    b.queue("idle")
    b.queue("sooner", expires=60000)
    b.queue("own", expires=700)
    b.wait(0.8)
    b.policy("e", {"expires": 700}, pattern="idle|sooner")
    b.wait(1.2)
    for name in ("idle", "sooner", "own"):
        b.tell(name, b.count(name))


@story
def auto_delete_and_expiry(b: Broker) -> None:
    b.declare_queue("both", auto_delete=True, arguments={"x-expires": 700})
    b.declare_queue("auto", auto_delete=True)
    b.get("auto", no_ack=True)
    b.wait(1.2)
    b.tell("never consumed", [b.count("both"), b.count("auto")])
    b.consume("c", "auto")
    b.tell("consumed", b.count("auto"))
    b.cancel("c")
    b.wait(0.4)
    b.tell("cancelled", b.count("auto"))


# Order, acknowledgement, redelivery


@story
def positions_after_requeue(b: Broker) -> None:
    b.queue()
    for i in range(5):
        b.publish(str(i))
    seen = [b.get() for _ in range(3)]
    b.nack(seen[1].tag, requeue=True)
    b.nack(seen[0].tag, requeue=True)
    b.tell("left", seen[2].left)
    b.tell("order", [(m.body, m.redelivered) for m in (b.get(no_ack=True) for _ in range(4))])
    b.ack(seen[2].tag)
    for i in range(3):
        b.publish(str(i))
    held = [b.get() for _ in range(3)]
    b.nack(held[-1].tag, requeue=True, multiple=True)
    b.tell("multiple", b.read_out())
    b.publish("r")
    b.get()
    b.recover()
    again = b.one()
    b.tell("recovered", (again.body, again.redelivered))


@story
def a_channel_gives_back(b: Broker) -> None:
    b.queue()
    for i in range(4):
        b.publish(str(i))
    b.consume("c", prefetch=3)
    b.tell("received", [(seen.body, seen.redelivered) for seen in b.received("c")])
    b.tell("ready", b.count())
    b.close_channel("c")
    b.tell("again", [(m.body, m.redelivered) for m in (b.get(no_ack=True) for _ in range(4))])


@story
def delivery_limits_of_quorum_queues(b: Broker) -> None:
    b.queue("dead")
    b.queue("q", queue_type="quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    b.publish("m")
    counts = []
    for _ in range(3):
        b.wait(0.3)
        seen = b.get()
        counts.append(seen.headers.get("x-delivery-count"))
        b.nack(seen.tag, requeue=True)
    b.wait(0.5)
    b.tell("delivery counts", counts)
    b.tell("then", [b.count("q"), b.count("dead")])
    dead = b.one("dead")
    b.tell("deaths", dead.deaths)
    b.tell("its count stays behind", "x-delivery-count" in dead.headers)


@story
def positions_in_quorum_queues(b: Broker) -> None:
    b.queue(queue_type="quorum", delivery_limit=5)
    for i in range(5):
        b.publish(str(i))
    b.wait(0.3)
    seen = [b.get() for _ in range(3)]
    b.nack(seen[1].tag, requeue=True)
    b.nack(seen[0].tag, requeue=True)
    b.wait(0.3)
    b.tell("returned apart", b.read_out())
    b.nack(seen[2].tag, requeue=True)
    b.wait(0.3)
    b.tell("returned last", [(m.body, m.redelivered, m.headers) for m in (b.one(),)])


@story
def dead_letters_of_a_lower_limit(b: Broker) -> None:
    """Several messages of one queue that are dropped at once."""
    for queue_type in ("classic", "quorum"):
        source, target = f"from-{queue_type}", f"of-{queue_type}"
        b.queue(target)
        b.queue(source, queue_type=queue_type, dead_letter_exchange="", dead_letter_routing_key=target)
        for i in range(5):
            b.publish(str(i), key=source)
        b.wait(0.3)
        b.policy("lower", {"max-length": 2}, pattern=f"^{source}$")
        b.wait(0.3)
        b.tell(f"{queue_type}, kept", b.read_out(source))
        b.tell(f"{queue_type}, dead-lettered", b.read_out(target))


# Consumers


@story
def single_active_consumer(b: Broker) -> None:
    b.queue(single_active_consumer=True)
    b.consume("c1")
    b.consume("c2")
    for i in range(2):
        b.publish(str(i))
    b.tell("the first gets all", [bodies(b.received("c1")), bodies(b.received("c2"))])
    b.tell("exclusive", b.consume("c3", exclusive=True))
    b.cancel("c1")
    b.publish("n")
    b.tell("the next takes over", bodies(b.received("c2")))


@story
def exclusive_consumers(b: Broker) -> None:
    b.queue()
    b.tell("first", b.consume("c1", exclusive=True))
    b.tell("another", b.consume("c2"))
    b.cancel("c1")
    b.tell("then", b.consume("c3"))
    b.tell("exclusive beside", b.consume("c4", exclusive=True))
    b.tell("bad priority", b.consume("c5", arguments={"x-priority": "5"}))
    b.tell("missing", b.consume("c6", "nowhere"))


@story
def prefetch_counts_per_consumer(b: Broker) -> None:
    b.queue()
    for i in range(5):
        b.publish(str(i))
    b.consume("c", prefetch=2)
    first = b.received("c")
    b.tell("two", bodies(first))
    b.settle("c", first[0].tag)
    b.tell("one more", bodies(b.received("c")))
    b.tell("ready", b.count())
    b.settle("c", first[1].tag, "requeue")
    deliveries = b.received("c")
    b.tell("requeued first", [(seen.body, seen.redelivered) for seen in deliveries])


@story
def higher_consumers_first(b: Broker) -> None:
    b.queue()
    b.consume("low", prefetch=10)
    b.consume("high", prefetch=2, arguments={"x-priority": 5})
    for i in range(4):
        b.publish(str(i))
    b.tell("high", bodies(b.received("high")))
    b.tell("low", bodies(b.received("low")))


@story
def unknown_delivery_tags(b: Broker) -> None:
    b.queue()
    b.tell("ack", b.ack(99))
    b.tell("ack none", b.ack(0))
    b.tell("nack", b.nack(99, requeue=True))
    b.tell("reject", b.reject(99, requeue=True))
    b.tell("all of none", b.ack(0, multiple=True))
    b.publish("m")
    tag = b.get().tag
    b.tell("once", b.ack(tag))
    b.tell("twice", b.ack(tag))
    b.publish("m")
    b.tell("up to one that is gone", b.ack(b.get().tag + 1, multiple=True))


@story
def exclusive_queues(b: Broker) -> None:
    b.declare_queue("e.ex", exclusive=True)
    b.queue("shared")
    other = b.another()
    b.tell("publishing", other.publish("m", key="e.ex"))
    for name, call in (
        ("declare", lambda: other.declare_queue("e.ex")),
        ("passive", lambda: other.declare_queue("e.ex", passive=True)),
        ("exclusive", lambda: other.declare_queue("e.ex", exclusive=True)),
        ("get", lambda: other.get("e.ex")),
        ("consume", lambda: other.consume("c", "e.ex")),
        ("purge", lambda: other.purge("e.ex")),
        ("delete", lambda: other.delete_queue("e.ex")),
        ("bind", lambda: other.bind("e.ex", "amq.fanout")),
        ("unbind", lambda: other.unbind("e.ex", "amq.fanout")),
    ):
        b.tell(name, call())
    b.tell("its own", [b.declare_queue("e.ex", exclusive=True), b.count("e.ex"), b.one("e.ex").body])
    b.tell("no longer exclusive", b.declare_queue("e.ex"))
    b.tell("a shared one as exclusive", b.declare_queue("shared", exclusive=True))
    b.disconnect()
    b.wait(0.3)
    b.tell("gone with its connection", other.count("e.ex"))
    other.disconnect()


# Declarations


@story
def redeclaring_queues(b: Broker) -> None:
    b.queue("b1", message_ttl=1000)
    for name, arguments in (
        ("same", {"x-message-ttl": 1000}),
        ("different", {"x-message-ttl": 2000}),
        ("absent", {}),
        ("more", {"x-message-ttl": 1000, "x-max-length": 5}),
        ("text", {"x-message-ttl": "1000"}),
        ("dlx", {"x-message-ttl": 1000, "x-dead-letter-exchange": "d"}),
        ("bool", {"x-message-ttl": 1000, "x-single-active-consumer": True}),
        ("big", {"x-message-ttl": 1000, "x-expires": 2**40}),
        ("void", {"x-message-ttl": None}),
        ("overflow", {"x-message-ttl": 1000, "x-overflow": "drop-head"}),
        ("priority", {"x-message-ttl": 1000, "x-max-priority": 5}),
        ("mode", {"x-message-ttl": 1000, "x-queue-mode": "lazy"}),
        ("version", {"x-message-ttl": 1000, "x-queue-version": 2}),
        ("classic", {"x-message-ttl": 1000, "x-queue-type": "classic"}),
        ("quorum", {"x-message-ttl": 1000, "x-queue-type": "quorum"}),
        ("unknown", {"x-message-ttl": 1000, "foo": [1]}),
        ("limit", {"x-message-ttl": 1000, "x-delivery-limit": 5}),
        ("age", {"x-message-ttl": 1000, "x-max-age": "1D"}),
        ("timeout", {"x-message-ttl": 1000, "x-consumer-timeout": 5}),
    ):
        b.tell(name, b.declare_queue("b1", arguments=arguments))
    b.tell("durable", b.declare_queue("b1", durable=False, arguments={"x-message-ttl": 1000}))
    b.tell("auto_delete", b.declare_queue("b1", auto_delete=True, arguments={"x-message-ttl": 1000}))
    b.tell("exclusive", b.declare_queue("b1", exclusive=True, arguments={"x-message-ttl": 1000}))
    b.tell("passive", b.declare_queue("b1", passive=True, durable=False, arguments={"x-message-ttl": 5}))
    b.queue("qq", queue_type="quorum")
    b.tell("quorum without a type", b.declare_queue("qq"))
    b.tell("quorum with a limit", b.queue("qq", queue_type="quorum", delivery_limit=5))
    b.tell("quorum as classic", b.queue("qq", queue_type="classic"))
    b.tell("passive missing", b.declare_queue("none", passive=True))


@story
def bad_arguments(b: Broker) -> None:
    for argument, value in (
        *(("message-ttl", value) for value in (-1, "1000", True, None, 2**40, [1], Decimal("1.5"), {"a": 1}, 0, 2**33)),
        *(("expires", value) for value in (0, -1, "1000", 315360000001)),
        *(("max-length", value) for value in (-1, "5", 0)),
        *(("max-length-bytes", value) for value in (-1, "5")),
        *(("overflow", value) for value in ("bogus", 5, "reject-publish-dlx")),
        *(("dead-letter-exchange", value) for value in (5, "")),
        *(("dead-letter-routing-key", value) for value in ("k", 5)),
        *(("max-priority", value) for value in (256, -1, "a", 0, 255)),
        *(("queue-type", value) for value in ("bogus", 5, "stream")),
        *(("queue-mode", value) for value in ("bogus", 5, "lazy")),
        *(("queue-version", value) for value in (3, -1, "1", 2)),
        *(("single-active-consumer", value) for value in ("true", 1, None, True)),
        *(("delivery-limit", value) for value in (5, "5")),
        ("dead-letter-strategy", "at-most-once"),
        ("quorum-initial-group-size", 3),
        ("queue-leader-locator", "balanced"),
        ("max-in-memory-length", 5),
        ("max-age", 5),
        ("initial-cluster-size", -1),
        ("queue-master-locator", "min-masters"),
        ("unheard-of", {"a": [None]}),
    ):
        b.tell(f"{argument} {value!r}", b.declare_queue("v", arguments={f"x-{argument}": value}))
        b.delete_queue("v")
    for argument, value in (
        *(("delivery-limit", value) for value in (5, -1, "5")),
        *(("dead-letter-strategy", value) for value in ("at-most-once", "bogus", 5)),
        *(("quorum-initial-group-size", value) for value in (0, -1, "x")),
        *(("queue-leader-locator", value) for value in ("bogus", 5)),
        *(("max-priority", value) for value in (5, "x")),
        *(("queue-mode", value) for value in ("lazy", 5)),
        ("max-in-memory-bytes", -5),
        ("queue-version", 2),
        ("max-age", "1D"),
        ("queue-master-locator", "min-masters"),
    ):
        stored_queue = b.declare_queue("w", arguments={"x-queue-type": "quorum", f"x-{argument}": value})
        b.tell(f"quorum: {argument} {value!r}", stored_queue)
        b.delete_queue("w")
    quorum = {"x-queue-type": "quorum"}
    b.tell("not durable", b.declare_queue("w", durable=False, arguments=quorum))
    b.tell("exclusive", b.declare_queue("w", exclusive=True, arguments=quorum))
    b.tell("auto-delete", b.declare_queue("w", auto_delete=True, arguments=quorum))
    b.tell("reserved", b.declare_queue("amq.foo"))
    b.tell("two at once", b.declare_queue("v", arguments={"x-message-ttl": "5", "x-expires": 0}))


@story
def names_the_server_makes(b: Broker) -> None:
    name = b.named_by_server()
    b.tell("what it looks like", (name[:8], len(name)))
    b.tell("passive", b.count(name))
    stored_queue = b.declare_queue(name)
    b.tell("declared again", stored_queue.replace(name, "NAME") if isinstance(stored_queue, str) else stored_queue)
    b.policy("all", {"max-length": 1})
    for body in "ab":
        b.publish(body, key=name)
    b.tell("policies apply", b.read_out(name))
    b.tell("nothing declared yet", b.another().count(""))


@story
def what_is_missing_or_in_use(b: Broker) -> None:
    b.queue("w.q")
    b.publish("m", key="w.q")
    b.tell("not empty", b.delete_queue("w.q", if_empty=True))
    b.consume("c", "w.q")
    b.received("c")
    b.tell("in use", b.delete_queue("w.q", if_unused=True))
    for name, call in (
        ("get", lambda: b.get("none")),
        ("purge", lambda: b.purge("none")),
        ("delete", lambda: b.delete_queue("none")),
        ("bind", lambda: b.bind("none", "amq.fanout")),
        ("bind to none", lambda: b.bind("w.q", "w.none")),
        ("unbind", lambda: b.unbind("none", "w.none")),
        ("unbind what is not bound", lambda: b.unbind("w.q", "amq.fanout", "k")),
        ("delete exchange", lambda: b.delete_exchange("w.none")),
        ("publish", lambda: b.publish("m", "w.none")),
        ("bind exchange", lambda: b.bind_exchange("w.none", "amq.fanout")),
    ):
        b.tell(name, call())


@story
def declaring_exchanges(b: Broker) -> None:
    b.exchange("w.x")
    for name, options in (
        ("same", {}),
        ("type", {"type": "fanout"}),
        ("durable", {"durable": False}),
        ("auto_delete", {"auto_delete": True}),
        ("internal", {"internal": True}),
        ("alternate", {"arguments": {"alternate-exchange": "y"}}),
        ("unknown argument", {"arguments": {"foo": 1}}),
        ("bad alternate of one that is there", {"arguments": {"alternate-exchange": 5}}),
        ("bogus", {"type": "bogus"}),
    ):
        b.tell(name, b.exchange("w.x", **options))
    b.tell("passive", b.exchange("w.none", passive=True))
    b.tell("reserved", b.exchange("amq.foo"))
    b.tell("system", b.exchange("amq.direct"))
    b.tell("system as another", b.exchange("amq.direct", "fanout"))
    b.tell("delete system", b.delete_exchange("amq.direct"))
    b.tell("default", [b.exchange(""), b.exchange("", passive=True), b.delete_exchange("")])
    b.tell("bad alternate", b.exchange("w.z", arguments={"alternate-exchange": 5}))
    b.queue()
    b.tell("bind default", [b.bind("q", "", "k"), b.unbind("q", "", "k")])
    b.bind("q", "w.x", "k")
    b.tell("in use", b.delete_exchange("w.x", if_unused=True))
    b.exchange("w.int", "fanout", internal=True)
    b.tell("internal publish", b.publish("m", "w.int"))
    b.exchange("auto", "fanout", auto_delete=True)
    b.tell("auto lives without a binding", b.exchange("auto", passive=True))
    b.bind("q", "auto")
    b.unbind("q", "auto")
    b.tell("auto goes with its last", b.exchange("auto", passive=True))
    b.exchange("h", "headers")
    b.tell("x-match", [b.bind("q", "h", "", {"x-match": value}) for value in ("bogus", 5, "any-with-x")])


# Routing


@story
def topic_matching(b: Broker) -> None:
    b.exchange("t", "topic")
    patterns = ("", "#", "#.#", "a.*", "a.#", "*.*", "#.b", "*", "a.#.z", "#.a.#", "a*", "*.#", "#.*")
    for i, pattern in enumerate(patterns):
        b.queue(f"t{i}")
        b.bind(f"t{i}", "t", pattern)
    keys = ("", "a", "b", "a.b", "a.", ".", "a..b", "a.b.c", "a.z", "a.x.y.z", "x.a.y", "a*", "..", ".a", "*", "#")
    for key in keys:
        b.publish(key or "(empty)", "t", key)
    for i, pattern in enumerate(patterns):
        b.tell(pattern, b.read_out(f"t{i}"))


@story
def headers_matching(b: Broker) -> None:
    b.exchange("h", "headers")
    bindings = (
        {"n": 1},
        {"x-match": "all", "n": 1, "s": "text"},
        {"x-match": "any", "n": 2, "s": "text"},
        {"x-match": "any", "n": 2},
        {"n": "1"},
        {"n": 2**40},
        {"n": None},
        {"x-h": "no"},
        {"x-match": "any", "x-h": "yes"},
        {"x-match": "all-with-x", "x-h": "no"},
        {"x-match": "all-with-x", "x-h": "yes"},
        {"x-match": "any-with-x", "x-h": "yes", "n": 7},
        {},
        {"x-match": "any"},
        {"x-match": "any-with-x"},
        {"t": {"a": [1]}},
        {"b": True},
        {"absent": None},
        {"x-match": "any", "absent": None},
    )
    for i, arguments in enumerate(bindings):
        b.queue(f"h{i}")
        b.bind(f"h{i}", "h", "", arguments)
    b.publish("full", "h", "", headers={"n": 1, "s": "text", "x-h": "yes", "t": {"a": [1]}, "b": True})
    b.publish("text", "h", "", headers={"n": "1"})
    b.publish("none", "h", "")
    for i, arguments in enumerate(bindings):
        b.tell(str(arguments), b.read_out(f"h{i}"))


@story
def ways_through_exchanges(b: Broker) -> None:
    for name in ("q", "ae", "k"):
        b.queue(name)
    for name in "xyz":
        b.exchange(name, "fanout")
    for source, destination in (("x", "y"), ("y", "z"), ("z", "x")):
        b.bind_exchange(destination, source)
        b.bind("q", source)
    b.publish("cycle", "x", "")
    b.tell("a cycle makes one copy", b.read_out())
    b.exchange("alternate", "fanout")
    b.bind("ae", "alternate")
    b.exchange("second", "direct", arguments={"alternate-exchange": "alternate"})
    b.exchange("first", "direct", arguments={"alternate-exchange": "second"})
    b.exchange("dead end", "direct")
    b.bind_exchange("dead end", "first", "somewhere")
    b.bind("q", "first", "known")
    b.tell("routed", [b.publish(key, "first", key, mandatory=True) for key in ("known", "unknown", "somewhere")])
    b.tell("who got it", [b.read_out("q"), b.read_out("ae")])
    b.exchange("lost", "direct", arguments={"alternate-exchange": "not there"})
    b.tell("no such alternate", b.publish("m", "lost", "k", mandatory=True))
    b.exchange("to default", "direct", arguments={"alternate-exchange": ""})
    b.publish("m", "to default", "k")
    b.tell("the default exchange as alternate", b.read_out("k"))
    b.policy("ae", {"alternate-exchange": "alternate"}, pattern="^plain$", apply_to="exchanges")
    b.exchange("plain", "direct")
    b.tell("by policy", [b.publish("p", "plain", "k", mandatory=True), b.read_out("ae")])


@story
def carbon_copies(b: Broker) -> None:
    for name in ("q", "cc", "bcc", "dead"):
        b.queue(name)
    b.publish("m", headers={"CC": ["cc", "q"], "BCC": ["bcc"], "own": 1})
    for name in ("q", "cc", "bcc"):
        seen = b.one(name)
        b.tell(name, (seen.key, seen.headers))
    b.tell("one copy", [b.count(name) for name in ("q", "cc", "bcc")])
    b.tell("a text", b.publish("m", headers={"CC": "cc"}))
    b.tell("a text in BCC", b.publish("m", headers={"BCC": "cc"}))
    b.tell("numbers", b.publish("m", headers={"CC": [5]}))
    b.tell("delivery mode", b.publish("m", delivery_mode=3))
    b.tell("priority", b.publish("m", priority=255))
    b.tell("unroutable", [b.publish("m", key="none"), b.publish("m", key="none", mandatory=True)])
