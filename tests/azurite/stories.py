"""What happens to queues and messages, told to either service. Each story tells facts; the test compares them by name.

The shortest time that the wire knows is a second, so every wait is that and at least half a second more: no fact hangs on less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.differential.comparison import Stories

from .brokers import Handle, Service

WEEK = 604_800
A_SECOND = 1.6  # in which what lasts a second is over, and what lasts three is not
story = STORIES = Stories()


def tell_each(b: Service, facts: dict[str, Any]) -> None:
    for fact, value in facts.items():
        b.tell(fact, value)


# Queues


@story
def creating_queues(b: Service) -> None:
    b.drop()
    b.tell("new", b.create())
    b.tell("again", b.create())
    b.tell("again with metadata", b.create(metadata={"a": "1"}))
    b.tell("nothing was changed", b.metadata())
    name = f"{b.name}-m"
    b.tell("with metadata", b.create(name, {"team": "Orders", "b": "2"}))
    tell_each(
        b,
        {
            "the same": b.create(name, {"team": "Orders", "b": "2"}),
            "the same in another order": b.create(name, {"b": "2", "team": "Orders"}),
            "names in another case": b.create(name, {"TEAM": "Orders", "B": "2"}),
            "a value in another case": b.create(name, {"team": "orders", "b": "2"}),
            "less": b.create(name, {"team": "Orders"}),
            "more": b.create(name, {"team": "Orders", "b": "2", "c": "3"}),
            "none": b.create(name),
            "what there is": b.metadata(name),
        },
    )
    b.drop(name)


@story
def names_of_queues(b: Service) -> None:
    for name in (
        *("ab", "abc", "a" * 63, "a" * 64, "a", "-abc", "abc-", "a--b", "ABC", "aBc", "a_b", "a.b", "a b", "äöü", "a|b"),
        *("0-0", "123", "a-b-c", "a+b", "a%41b", "$logs", "a*b", "a-", "-" * 3, "-" * 64, "A" * 64, "ﬀﬀﬀ", "a²3", "١٢٣"),
    ):
        b.tell(f"create {name[:20]} ({len(name)})", b.create(name))
        b.drop(name)
    for name in ("ab", "ABC", "a--b", "a_b"):
        tell_each(
            b,
            {
                f"put into {name}": b.put("m", name),
                f"get from {name}": b.get(queue=name),
                f"count of {name}": b.count(name),
                f"drop {name}": b.drop(name),
            },
        )


@story
def metadata(b: Service) -> None:
    b.tell("none", b.metadata())
    for fact, pairs in {
        "one": {"a": "1"},
        "others": {"b": "2", "c": "3"},
        "none again": {},
        "upper case": {"UpperCase": "V"},
        "an underscore first": {"_a": "v"},
        "digits behind": {"a1": "v"},
        "an underscore inside": {"a_b": "v"},
        "a digit first": {"1a": "v"},
        "a dash": {"a-b": "v"},
        "a dot": {"a.b": "v"},
        "a dollar": {"a$": "v"},
        "an empty value": {"a": ""},
        "blanks inside": {"a": "x  y"},
        "blanks behind": {"a": "x \t "},
        "signs": {"a": "!#$%&'()*+-./:;<=>?@[]^_`{|}~\""},
        "a comma": {"a": "x, y"},
        "a tab": {"a": "x\ty"},
        "four thousand characters": {"a": "x" * 4000},
        "nine thousand": {"a": "x" * 9000},
    }.items():
        b.set_metadata({"before": "1"})
        b.tell(fact, [b.set_metadata(pairs), b.metadata()])
    b.tell("of a queue that is not there", [b.metadata("nobody"), b.set_metadata({"a": "1"}, "nobody")])
    b.set_metadata({"a": "x"})
    b.tell("created again, with blanks behind", b.create(metadata={"a": "x "}))


@story
def listing_queues(b: Service) -> None:
    b.drop()
    for name in ("b", "a", "ab", "b-a", "1", "aa0", "a-b"):
        b.create(f"{b.name}-{name}")
    for prefix in ("", "a", "ab", "b", "b-", "zzz", "A"):
        b.tell(f"those with {prefix!r}", b.names(f"{b.name}-{prefix}"))
    b.tell("in upper case", b.names(b.name.upper()))
    b.tell("a sign", [b.names(f"{b.name}%"), b.names(f"{b.name}_"), b.names(f"{b.name}*")])
    for name in b.names(f"{b.name}-"):
        b.drop(name)
    b.tell("no longer", b.names(b.name))


@story
def a_deleted_queue(b: Service) -> None:
    message = b.put("m")
    b.tell("deleted", b.drop())
    tell_each(
        b,
        {
            "again": b.drop(),
            "put": b.put("m"),
            "get": b.get(),
            "peek": b.peek(),
            "update": b.update(message.handle, 1),
            "delete": b.delete(message.handle),
            "clear": b.clear(),
            "count": b.count(),
            "metadata": b.metadata(),
            "set metadata": b.set_metadata({"a": "1"}),
            "put what is wrong": b.put("m", visibility=-1),
            "put what is too large": b.put("x" * 65_537),
            "get what is wrong": b.get(33),
            "peek what is wrong": b.peek(0),
            "update what is wrong": b.update(message.handle, WEEK + 1),
            "update of what never was": b.update(Handle("no-such-id", "nobodys"), 1),
        },
    )
    b.tell("made anew", b.create())
    b.tell("it is empty", [b.count(), b.peek(32), b.get(32)])
    b.tell("old messages", [b.update(message.handle, 1), b.delete(message.handle)])


# Putting


@story
def what_a_put_tells(b: Service) -> None:
    puts: dict[str, dict[str, Any]] = {
        "nothing given": {},
        "delay of 0": {"visibility": 0},
        "delay of 1": {"visibility": 1},
        "delay of a week": {"visibility": WEEK},
        "delay over a week": {"visibility": WEEK + 1},
        "delay below 0": {"visibility": -1},
        "life of 0": {"life": 0},
        "life of 1": {"life": 1},
        "life of a week": {"life": WEEK},
        "life over a week": {"life": WEEK + 1},
        "life of a hundred years": {"life": 100 * 365 * 86_400},
        "life beyond the year 9999": {"life": 9000 * 365 * 86_400},
        "life for ever": {"life": -1},
        "life of -2": {"life": -2},
        "delay as long as the life": {"visibility": 10, "life": 10},
        "delay over the life": {"visibility": 11, "life": 10},
        "delay just below the life": {"visibility": 9, "life": 10},
        "a week of both": {"visibility": WEEK, "life": WEEK},
        "delay of a week, life for ever": {"visibility": WEEK, "life": -1},
        "delay of a week, life just over it": {"visibility": WEEK, "life": WEEK + 1},
        "both wrong": {"visibility": -1, "life": 0},
        "delay over a week, and over the life": {"visibility": WEEK + 1, "life": 10},
        "delay wrong, life for ever": {"visibility": WEEK + 1, "life": -1},
    }
    for fact, options in puts.items():
        b.tell(fact, b.put("m", **options))
    b.tell("too large, and a wrong delay", b.put("x" * 65_537, visibility=-1))
    b.tell("too large, and no life", b.put("x" * 65_537, life=0))
    b.tell("how many were stored", b.count())


@story
def texts(b: Service) -> None:
    for fact, text in {
        "empty": "",
        "a blank": " ",
        "blanks around": "  x  ",
        "line ends": "a\nb",
        "a carriage return": "a\rb",
        "both": "a\r\nb",
        "a tab": "\ta\t",
        "markup": "<a href='x'>&amp;&lt;</a>\"",
        "a section": "<![CDATA[x]]>",
        "]]>": "]]>",
        "letters": "äöü ß € 日本語 \u200f",
        "beyond 16 bits": "😀𝄞",
        "an escape": "&#65;",
        "of DEL": "\x7f",
        "of C1": "\x80\x85\x9f",
        "line separators": "\u2028\u2029",
        "a byte order mark": "\ufeffa",
        "a private letter": "\ue000",
        "a decomposed letter": "e\u0301",
        "the largest of one byte": "x" * 65_536,
        "the largest of two bytes": "é" * 32_768,
        "markup as large as may be": "&" * 65_536,
    }.items():
        put = b.put(text)
        if isinstance(put, str):
            b.tell(fact, put)
            continue
        b.tell(f"{fact}: peeked", [seen.text == text or seen.text[:40] for seen in b.peek()])
        seen = b.one()
        b.tell(f"{fact}: got", seen.text == text or seen.text[:40])
        b.delete(seen.handle)
    for fact, text in {
        "one byte too many": "x" * 65_537,
        "one letter too many": "é" * 32_768 + "x",
        "far too many": "x" * 200_000,
    }.items():
        b.tell(fact, b.put(text))
    b.tell("nothing is left", b.count())


@story
def what_xml_cannot_carry(b: Service) -> None:
    for character in "\x00\x01\x08\x0b\x0c\x0e\x1f\ufffe\uffff":
        b.tell(f"put U+{ord(character):04X}", [b.put(f"a{character}b"), b.peek()])
        b.clear()
    b.tell("update", b.update(b.put("m").handle, 0, "a\x01b"))
    b.tell("what is got then", b.get())


# Getting and peeking


@story
def getting(b: Service) -> None:
    b.tell("of an empty queue", [b.get(), b.get(32), b.peek(), b.peek(32)])
    for i in range(34):
        b.put(f"m{i:02}")
    tell_each(
        b,
        {
            "peek without a number": b.peek(),
            "peek 2": b.peek(2),
            "peek 32": b.peek(32),
            "peek 33": b.peek(33),
            "peek 0": b.peek(0),
            "peek -1": b.peek(-1),
            "get 33": b.get(33),
            "get 0": b.get(0),
            "get -1": b.get(-1),
            "hidden for 0": b.get(1, 0),
            "hidden for -1": b.get(1, -1),
            "hidden for more than a week": b.get(1, WEEK + 1),
            "both wrong": b.get(33, 0),
            "nothing was taken": b.peek(),
            "get without a number": b.get(),
            "get 1 for a second": b.get(1, 1),
            "get 1 for a week": b.get(1, WEEK),
        },
    )
    b.tell("get 32 of 31", b.get(32, 60))
    b.tell("nothing is left", [b.get(), b.peek(), b.count()])


@story
def leases(b: Service) -> None:
    b.put("a")
    first = b.one(1)
    b.tell("first", first)
    b.tell("hidden", [b.get(), b.peek(), b.count()])
    b.wait(A_SECOND)
    b.tell("visible again", b.peek())
    second = b.one(1)
    b.tell("second", second)
    b.tell("with the first receipt", [b.update(first.handle, 1), b.delete(first.handle)])
    b.wait(A_SECOND)
    b.tell("third", b.one(3))
    b.wait(A_SECOND)
    b.tell("still hidden", b.get())
    b.wait(2)
    b.tell("fourth", b.get())


@story
def the_order_of_messages(b: Service) -> None:
    for text, delay in (("a", 0), ("late", 4), ("soon", 1), ("b", 0), ("c", 0)):
        b.put(text, visibility=delay)
    b.tell("as put", b.peeked())
    b.tell("one by one", [b.one(1).text, b.one(60).text])  # a comes back, b does not
    b.tell("what is left", b.peeked())
    b.wait(A_SECOND)
    b.put("d")
    b.tell("those that became visible", b.peeked())
    b.wait(3)
    b.tell("all that are visible", b.peeked())
    b.tell("got so", b.texts())


@story
def the_order_of_what_is_given_back(b: Service) -> None:
    for text in "abcd":
        b.put(text)
    handles = {seen.text: seen.handle for seen in b.get(3, 60)}
    for text in "cab":
        b.update(handles[text], 0)
    b.tell("in the order of giving back, behind what waited", b.peeked())
    handles = {seen.text: seen.handle for seen in b.get(4, 60)}
    b.update(handles["d"], 3)
    b.update(handles["a"], 1)
    b.wait(4)
    b.tell("in the order of becoming visible", b.peeked())
    b.put("e")
    b.tell("and then", b.texts())


@story
def many_of_one_get_come_back_in_their_order(b: Service) -> None:
    for i in range(6):
        b.put(f"m{i}")
    b.tell("at once", [seen.text for seen in b.get(4, 1)])
    b.put("new")
    b.wait(A_SECOND)
    b.tell("again", b.peeked())
    b.tell("with their counts", b.get(32))


@story
def peeking_changes_nothing(b: Service) -> None:
    message = b.put("a")
    b.put("hidden", visibility=60)
    seen = [b.peek(32) for _ in range(3)]
    b.tell("each time", seen)
    b.tell("it has no receipt", [m.handle.receipt if m.handle else None for m in seen[0]])
    b.tell("the count", b.count())
    b.tell("the receipt of the put", b.update(message.handle, 0))
    b.tell("got for the first time", b.get())


# Updating


@story
def updating(b: Service) -> None:
    put = b.put("a", life=100)
    first = b.one()
    b.tell("with the receipt of the put", b.update(put.handle, 1))
    changed = b.update(first.handle, 60)
    b.tell("without a text", changed)
    b.tell("with the receipt before it", [b.update(first.handle, 60), b.delete(first.handle)])
    changed = b.update(changed.handle, 0)
    b.tell("to 0", changed)
    b.tell("visible at once", b.peek())
    changed = b.update(changed.handle, 0, "b")
    b.tell("a text", [changed, b.peek()])
    changed = b.update(changed.handle, 0, "")
    b.tell("an empty text", [changed, b.peek()])
    changed = b.update(changed.handle, 0, " \r\n<&>")
    b.tell("an odd text", [changed, b.peek()])
    for fact, visibility, text in (
        ("below 0", -1, None),
        ("over a week", WEEK + 1, None),
        ("too large", 0, "x" * 65_537),
        ("both wrong", -1, "x" * 65_537),
    ):
        b.tell(fact, b.update(changed.handle, visibility, text))
    b.tell("nothing was changed", b.peek())
    changed = b.update(changed.handle, 0, "x" * 65_536)
    b.tell("the largest", changed)
    b.tell("for a week, over its life", b.update(changed.handle, WEEK))
    b.tell("nothing is visible", b.peek())


@story
def updating_before_a_get(b: Service) -> None:
    put = b.put("a", visibility=60)
    changed = b.update(put.handle, 1, "b")
    b.tell("sooner", changed)
    b.tell("hidden", b.get())
    b.wait(A_SECOND)
    b.tell("then", b.one())
    put = b.put("c")
    changed = b.update(put.handle, 1)
    b.tell("hidden by its producer", [changed, b.get()])
    b.wait(A_SECOND)
    changed = b.update(changed.handle, 0)
    b.tell("its receipt is as good", [changed, b.one()])


@story
def the_clock_does_not_end_a_receipt(b: Service) -> None:
    for text in ("updated", "deleted", "taken", "updated by its putter"):
        b.put(text)
    held = {seen.text: seen.handle for seen in b.get(3, 1)}
    b.wait(A_SECOND)
    updated = b.update(held["updated"], 60, "later")
    b.tell("updated after its lease", updated)
    b.tell("deleted after its lease", b.delete(held["deleted"]))
    b.tell("who is next", b.texts())
    b.tell("after somebody took it", [b.update(held["taken"], 0), b.delete(held["taken"])])
    b.tell("the one that was updated", b.delete(updated.handle))


@story
def wrong_handles(b: Service) -> None:
    a, other = b.put("a").handle, b.put("b").handle
    b.tell("a receipt of another", [b.update(replace(a, receipt=other.receipt), 1), b.delete(replace(a, receipt=other.receipt))])
    never = "5f0f7a2c-0f5a-4c3e-9c52-8a5ee7b1a0aa"
    for fact, message_id in (
        ("an id that never was", never),
        ("in upper case", a.id.upper()),
        ("in braces", f"{{{a.id}}}"),
        ("without dashes", a.id.replace("-", "")),
        ("a word", "no-such-id"),
        ("a number", "1"),
        ("a long one", "x" * 200),
        ("a sign", "a'b"),
    ):
        handle = replace(a, id=message_id)
        b.tell(fact, [b.update(handle, 1), b.delete(handle)])
    for fact, receipt in (("a word", "nobodys"), ("a long one", "x" * 500), ("signs", "a+b/c="), ("its own id", a.id)):
        handle = replace(a, receipt=receipt)
        b.tell(f"{fact} as receipt", [b.update(handle, 1), b.delete(handle)])
    b.tell("of another queue", [b.update(a, 1, queue=f"{b.name}-o") for _ in [b.create(f"{b.name}-o")]])
    b.drop(f"{b.name}-o")
    b.tell("which is wrong first", [b.update(replace(a, receipt="nobodys"), -1), b.update(Handle(never, "nobodys"), -1)])
    b.tell("nothing was changed", b.peek(32))


@story
def receipts_of_one_get(b: Service) -> None:
    for text in "ab":
        b.put(text)
    a, other = (seen.handle for seen in b.get(2, 60))
    b.tell("the receipt of the other", b.delete(replace(a, receipt=other.receipt)))


# Deleting


@story
def deleting(b: Service) -> None:
    put = b.put("a")
    seen = b.one()
    b.tell("with the receipt of the put", b.delete(put.handle))
    b.tell("with its own", b.delete(seen.handle))
    b.tell("again", b.delete(seen.handle))
    b.tell("updated", b.update(seen.handle, 1))
    b.tell("nothing is left", [b.count(), b.get()])
    put = b.put("b")
    b.tell("before a get", b.delete(put.handle))
    put = b.put("c", visibility=60)
    b.tell("while it is delayed", b.delete(put.handle))
    changed = b.update(b.put("d").handle, 60)
    b.tell("after an update", b.delete(changed.handle))
    b.tell("all gone", b.count())


@story
def clearing(b: Service) -> None:
    b.tell("an empty queue", b.clear())
    delayed = b.put("delayed", visibility=60)
    b.put("got")
    seen = b.one()
    b.put("visible")
    b.tell("before", b.count())
    b.tell("cleared", b.clear())
    b.tell("after", [b.count(), b.get(32), b.peek(32)])
    b.tell("of those who held them", [b.delete(seen.handle), b.update(seen.handle, 1), b.update(delayed.handle, 1)])
    b.put("new")
    b.tell("new ones", b.texts())


# Time


@story
def expired_messages(b: Service) -> None:
    short = b.put("short", life=1)
    delayed = b.put("delayed", visibility=1, life=2)
    b.put("long", life=60)
    b.put("for ever", life=-1)
    b.tell("before", [b.peek(32), b.count()])
    b.wait(A_SECOND)
    b.tell("one has expired, one is visible", b.peek(32))
    b.tell("the one", [b.update(short.handle, 1), b.delete(short.handle), b.update(replace(short.handle, receipt="nobodys"), 1)])
    b.wait(1)
    b.tell("both have expired", b.peek(32))
    b.tell("the other", b.delete(delayed.handle))
    b.tell("the count", b.count())
    b.tell("got", b.get(32))


@story
def expired_while_it_is_held(b: Service) -> None:
    b.put("a", life=1)
    seen = b.one(30)
    b.tell("a lease over the end of its life", seen)
    b.wait(A_SECOND)
    b.tell("afterwards", [b.update(seen.handle, 0), b.delete(seen.handle), b.count()])
    b.put("b", life=2)
    changed = b.update(b.one(1).handle, 30)
    b.tell("an update over the end of its life", changed)
    b.wait(2.6)
    b.tell("then", [b.peek(), b.update(changed.handle, 0), b.delete(changed.handle)])
    b.put("c", life=1)
    changed = b.update(b.one(30).handle, 0)
    b.tell("given back, it has the life that it had", b.peek())
    b.wait(A_SECOND)
    b.tell("and no more", b.peek())


@story
def expired_unseen(b: Service) -> None:
    b.put("a", life=1)
    b.put("b", visibility=1, life=2)
    b.put("c")
    b.tell("at first", b.count())
    b.wait(2.6)
    b.tell("the count before anybody looks", b.count())
    b.tell("a look", b.peeked())
    b.tell("the count then", b.count())


@story
def counting(b: Service) -> None:
    b.put("visible")
    b.put("delayed", visibility=60)
    b.put("got")
    counts = [b.count()]
    first, second = b.one(60), b.one(1)
    counts.append(b.count())
    b.delete(first.handle)
    counts.append(b.count())
    b.update(second.handle, 60)
    counts.append(b.count())
    b.tell("each time", counts)
