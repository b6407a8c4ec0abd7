"""The language of the fields of pages, as tables and properties; and the addresses of earlier versions."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import operations, reads
from broker_core.common.errors import FilterError
from broker_core.common.types import EventKind, Family
from broker_core.reads.conditions import NumberRange
from explorer.frames import entity_conditions, vocabularies
from explorer.frames.family import installed
from explorer.frames.vocabularies import ACTIVITY, COUNTS, ENTITIES, LOCKS, OPERATIONS, SESSIONS, TAIL
from explorer.frames.vocabulary import Kind, Terms, condition, parse
from tests.html import body_of

from .conftest import FRAGMENT

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def terms(text, vocabulary=ENTITIES):
    return Terms(tuple(token.condition for token in parse(text, vocabulary, now=NOON)))


@pytest.mark.parametrize(
    ("text", "vocabulary", "words", "values"),
    [
        ("", ENTITIES, (), {}),
        ("orders eu", ENTITIES, ("orders", "eu"), {}),
        ('"two words" family:RabbitMQ', ENTITIES, ("two words",), {"family": "rabbitmq"}),
        ("family:queue_storage", ENTITIES, (), {"family": "queue-storage"}),
        ("dead>0 available:5..9", ENTITIES, (), {"dead": (1, None), "available": (5, 9)}),
        ('prefix:"a b/"', ENTITIES, (), {"prefix": "a b/"}),
        ("holder=process:worker", LOCKS, (), {"holder": "process:worker"}),
        ("by:ada is:undoable", OPERATIONS, (), {"by": "ada", "is": "undoable"}),
        ("at:09:00..09:30", ACTIVITY, (), {"at": (NOON.replace(hour=9), NOON.replace(hour=9, minute=31))}),
        ("event:lock_lost", TAIL, (), {"event": "lock-lost"}),
        ("a:b", SESSIONS, ("a:b",), {}),  # no keys: a session id may have a colon
    ],
)
def test_conditions_are_read(text, vocabulary, words, values):
    found = terms(text, vocabulary)
    assert found.words == words and {term.key: term.value for term in found.terms if term.key} == values


@pytest.mark.parametrize(
    ("text", "vocabulary", "at", "says"),
    [
        ("famly:rabbitmq", ENTITIES, 0, "There is no key famly here. Write family:, or put the text in quotes"),
        ("x colour:red", LOCKS, 2, "The keys of this list are namespace, family, holder."),
        ("family:kafka", ENTITIES, 7, "There is no family kafka. Write one of service-bus, queue-storage, rabbitmq."),
        ("family:", ENTITIES, 7, "Write a value after family:, one of service-bus, queue-storage, rabbitmq."),
        ("dead:many", ENTITIES, 5, "many is not a whole number"),
        ("dead>", ENTITIES, 5, "as in dead>0."),
        ("kind:queue kind:topic", ENTITIES, 11, "kind can be given once."),
        ("state!=active", ENTITIES, 5, "Write state: before the value."),
        ("holder>3", LOCKS, 6, "Write holder: before the value."),
        ("-orders", ENTITIES, 0, "no negated conditions"),
        ("orders OR carts", ENTITIES, 7, "there is no OR"),
        ("ord*", ENTITIES, 0, "Remove the *"),
        ('"open', ENTITIES, 0, "The quote is not closed"),
        ("at:noon", ACTIVITY, 3, "noon is not a time in UTC"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_its_place_and_what_to_write(text, vocabulary, at, says):
    with pytest.raises(FilterError) as refused:
        terms(text, vocabulary)
    assert refused.value.position == at and says in str(refused.value)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40).filter(str.strip)


@given(texts)
def test_any_text_can_be_written_as_a_word_or_a_value(text):
    assert terms(condition("", text)).words == (text,)
    assert terms(condition("holder", text), LOCKS).get("holder") == text


@given(st.text(max_size=60), st.sampled_from(list(vocabularies.ALL.values())))
def test_each_text_is_read_or_refused(text, vocabulary):
    try:
        found = terms(text, vocabulary)
    except FilterError as refused:
        assert 0 <= refused.position <= len(text)
    else:
        assert {term.key for term in found.terms} <= {"", *(key.name for key in vocabulary.keys)}


def test_vocabularies_are_sound():
    """The examples that the fields show can be read; choices are written as they are compared."""
    for vocabulary in (*vocabularies.ALL.values(), *(own for pages in installed() for own in pages.vocabularies)):
        terms(vocabulary.example, vocabulary)
        for key in vocabulary.keys:
            assert (key.kind is Kind.CHOICE) == bool(key.choices()), key.name
            for choice in key.choices():
                assert terms(f"{key.name}:{choice}", vocabulary).get(key.name) == choice
            if key.example:
                terms(key.example, vocabulary)


def test_groups_and_names_of_events_stand_for_their_kinds():
    assert vocabularies.kinds_of("ends") == (EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED)
    assert vocabularies.kinds_of("lock-lost") == (EventKind.LOCK_LOST,)
    assert {kind for name in TAIL.keys[2].choices() for kind in vocabularies.kinds_of(name)} == set(EventKind)


def test_conditions_become_a_filter_of_entities():
    found = entity_conditions.filter_of(terms("Orders/Subscriptions/EU family:rabbitmq dead>1 state:no-receivers"))
    assert found.parts == ("orders/eu",) and found.family is Family.RABBITMQ and found.is_paused is None
    assert found.counts == (NumberRange("dead", 2, None), NumberRange("neglected", 1, None))
    assert entity_conditions.filter_of(terms("state:paused")).is_paused is True


# Addresses of earlier versions

OLD = {
    "/entities/?q=eu+orders&kind=queue&family=queue_storage&all=1&sort=": '/entities/?all=1&q=family:queue-storage kind:queue '
                                                                         '"eu orders"',
    "/entities/?q=orders&kind=": "/entities/?q=orders",
    "/namespaces/demo/?within=eu/": "/namespaces/demo/?q=prefix:eu/",
    "/dead-letters/?q=&why=late+again&family=": '/dead-letters/?q=reason:"late again"',
    "/locks/?holder=process:worker&q=demo&all=": "/locks/?q=holder:process:worker demo",
    "/operations/?kind=archive&undoable=on": "/operations/?q=kind:archive is:undoable",
    "/administration/activity/?actor=ada&queue=eu/orders&outcome=refused&before=7":
        "/administration/activity/?before=7&q=actor:ada entity:eu/orders outcome:refused",
    "/tail/?entity=demo/orders&kinds=failures&actor=app&id=o-1": "/tail/?q=entity:demo/orders event:failures by:app o-1",
    "/tail/?namespace=demo&kinds=&actor=&id=": "/tail/?q=namespace:demo",
    "/entities/demo/orders?tab=history&id=o-1&outcome=RECEIVED_AND_DELETED&by=app&m=4":
        "/entities/demo/orders?tab=history&m=4&q=outcome:received-and-deleted by:app o-1",
    "/entities/demo/orders?tab=sessions&session=-b": '/entities/demo/orders?tab=sessions&q="-b"',
    "/entities/demo/orders?tab=active&q=id:a&q=&q=-id:b&order=": "/entities/demo/orders?tab=active&q=id:a -id:b",
    "/messages/?q=&all=": "/messages/",
    "/dead-letters/dead-letter/demo/orders?filter=reason%3DSchema&m=2&tried=":
        "/dead-letters/dead-letter/demo/orders?m=2&q=reason=Schema",
    "/dead-letters/main/demo/jobs-poison?filter=": "/dead-letters/main/demo/jobs-poison",
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("old", OLD)
def test_an_old_address_leads_to_its_conditions(as_, old):
    answer = as_("viewer").get(old)
    assert answer.status_code == 302
    new, wanted = urlsplit(answer.url), urlsplit(OLD[old])
    assert (new.path, parse_qs(new.query)) == (wanted.path, parse_qs(wanted.query))


@pytest.mark.django_db
def test_an_address_with_conditions_stays(as_):
    for path in (
        "/entities/?q=orders+dead%3E0&sort=-dead",
        "/locks/?q=holder:worker",
        "/tail/?q=event:failures",
        "/messages/?q=x",
    ):
        assert as_("viewer").get(path).status_code == 200, path


@pytest.mark.django_db
def test_a_form_of_an_earlier_version_still_acts_on_what_its_address_names(shop, jobs, as_):
    client = as_("operator")
    client.post(f"/locks/?q={shop.namespace}&holder=nobody", {"action": "release-all", "reason": "x"})
    assert reads.counts(shop).locked == 1, "the lock has another holder"
    client.post(f"/locks/?q={shop.namespace}&holder=worker", {"action": "release-all", "reason": "x"})
    assert reads.counts(shop).locked == 0 and reads.counts(jobs).locked > 0


# Pages


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/entities/", "/dead-letters/", "/connections/", "/locks/", "/operations/", "/administration/activity/", "/tail/"]
)
def test_a_bad_condition_is_shown_in_the_field_of_each_page(as_, path):
    for headers in ({}, FRAGMENT):
        answer = as_("viewer").get(f"{path}?q=colour:red", headers=headers)
        text = body_of(answer)
        assert answer.status_code == 400 and "<mark>colour:red</mark>" in text and 'value="colour:red"' in text
        assert "There is no key colour here" in text and 'aria-invalid="true"' in text


@pytest.mark.django_db
def test_entities_are_found_by_state_and_numbers(shop, jobs, as_):
    def found(query):
        rows = as_("viewer").get("/entities/", {"q": f"{query} namespace:{shop.namespace}"}).context["entities"]
        return [row.address for row in rows]

    assert found("dead>0") == found("locked:1") == [shop] and found("dead>1") == []
    assert found("state:active") == [shop] and found("state:paused") == []
    assert found("family:rabbitmq") == [] and found("orders eu") == [shop] and found("orders us") == []
    assert set(COUNTS) <= {key.name for key in ENTITIES.keys}


@pytest.mark.django_db
def test_activity_is_found_by_what_was_done_and_when(pages, as_):
    client = as_("operator")
    client.post(f"/operate/{pages.at}", {"kind": "discard", "tab": "active", "numbers": ["6"]})

    def found(query):
        return [record.action for record in client.get("/administration/activity/", {"q": query}).context["records"]]

    assert "discard" in found("action:discard") and "discard" in found(f"{pages.shop.namespace} at>2020-01-01")
    assert found("action:discard outcome:refused") == found("action:discard at<2020-01-01") == []


@pytest.mark.django_db
def test_operations_are_found_by_state_and_person(pages, as_):
    client = as_("operator")
    client.post(f"/operate/{pages.at}", {"kind": "discard", "tab": "active", "numbers": ["6"]})
    [newest] = operations.newest(limit=1)

    def found(query):
        return [line.operation.id for line in client.get("/operations/", {"q": query}).context["past"]]

    name = client.user.get_username()
    assert newest.id in found(f"state:done by:{name} {pages.shop.namespace}")
    assert newest.id not in found("state:failed") + found("by:somebody-else") + found(f"{pages.shop.namespace} nothing")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "typed", "first", "applies"),
    [
        ("entities", "fam", "family:", False),
        ("entities", "orders family:rab", "family:rabbitmq", True),
        ("entities", "virtual", "namespace:", False),
        ("entities", "de", "dead>0", False),
        ("tail", "event:lock", "event:lock-lost", True),
        ("locks", "holder:w", "holder:process:worker", True),
        ("activity", "outcome:", "outcome:done", True),
        ("rabbitmq-queues", "type:q", "type:quorum", True),
        ("rabbitmq-queues", "con", "consumers>0", False),
        ("rabbitmq-exchanges", "type:to", "type:topic", True),
    ],
)
def test_keys_and_values_are_suggested(shop, as_, name, typed, first, applies):
    text = body_of(as_("viewer").get(f"/suggestions/{name}/", {"q": typed}))
    option = text.partition("</li>")[0]
    assert f'data-text="{first}"' in option and ("data-applies" in option) is applies


@pytest.mark.django_db
def test_places_are_suggested(shop, as_):
    client = as_("viewer")
    assert f"namespace:{shop.namespace}" in body_of(client.get("/suggestions/locks/", {"q": f"namespace:{shop.namespace}"}))
    assert f"entity:{shop}" in body_of(client.get("/suggestions/tail/", {"q": f"entity:{shop}"}))
    assert "data-text" not in body_of(client.get("/suggestions/entities/", {"q": "zzz"}))
    assert client.get("/suggestions/nothing/").status_code == 404
