"""The form that edits a message that waits (docs/design.md D22): for whom, what it refuses, and what is seen afterwards."""

import re

import pytest
from playwright.sync_api import expect

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind, EntityAddress
from broker_core.service_bus.rules.values import Message
from explorer.models import AuditRecord
from tests.html import body_of

from .conftest import WORKER
from .test_accessibility import DESK, PHONE, browser, problems  # noqa: F401

pytest_plugins = ["tests.explorer.rabbitmq_office"]


def fields(page):
    """What the form would post, as it is shown."""
    page = page[page.index('name="version"') - 200 :]
    values = {"version": re.search(r'name="version" value="(\d+)"', page)[1], "reason": ""}
    if (body := re.search(r"<textarea[^>]*>\n?(.*?)</textarea>", page, re.DOTALL)) is not None:
        values["body"] = body[1].replace("&quot;", '"')
    prefix = re.search(r'name="(\w+)_name"', page)
    for part in ("name", "value") if prefix else ():
        values[f"{prefix[1]}_{part}"] = re.findall(rf'name="{prefix[1]}_{part}"\s+value="([^"]*)"', page)
    if prefix:
        selects = re.findall(r"<select.*?</select>", page, re.DOTALL)
        values[f"{prefix[1]}_type"] = [(re.search(r"selected>([\w]+)<", one) or ["", "string"])[1] for one in selects]
    return values


def opened(client, url):
    response = client.get(url)
    assert response.status_code == 200, body_of(response)
    return fields(body_of(response))


def body(address, number):
    return reads.body(address, number).content


@pytest.mark.parametrize(("number", "offered"), [(2, False), (3, True), (4, False), (5, True), (6, True), (7, False)])
def test_a_message_is_offered_to_be_edited_while_it_waits(pages, as_, number, offered):
    """Dead, deferred, locked, active, scheduled, expired."""
    operator = as_("operator")
    link = f'href="/edit/{pages.at}/{number}'
    assert (link in body_of(operator.get(f"/messages/{pages.at}/{number}"))) is offered
    assert (link in body_of(operator.get(f"/entities/{pages.at}?m={number}"))) is offered
    assert "Edit…" not in body_of(as_("viewer").get(f"/messages/{pages.at}/{number}"))
    assert operator.get(f"/edit/{pages.at}/{number}").status_code == (200 if offered else 409)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (2, "Dead letters cannot be edited. Repair and resubmit the message instead."),
        (4, "Locked by worker. Release its lock first."), (7, "The message has expired. Send a new one instead."),
    ],
)  # fmt: skip
def test_the_form_of_a_message_that_does_not_wait_says_why(pages, as_, number, says):
    assert f"Message {number} cannot be edited. {says}" in body_of(as_("operator").get(f"/edit/{pages.at}/{number}"))


def test_an_edit_is_seen_on_the_message_in_its_timeline_and_in_the_activity(pages, as_):
    operator = as_("operator")
    values = opened(operator, f"/edit/{pages.at}/5")
    assert values["body"] == '{\n  "n": 1\n}' and values["property_name"][0] == "region"
    values |= {"body": '{"n": 2}', "property_value": ["us", "", ""], "reason": " wrong  region "}
    response = operator.post(f"/edit/{pages.at}/5", values)
    assert (response.status_code, response["Location"]) == (302, f"/messages/{pages.at}/5")
    page = body_of(operator.get(response["Location"]))
    assert "Edited the body and the application properties of message 5." in page
    assert "Edited the body and the application properties</" in page and "wrong region" in page
    assert body(pages.shop, 5) == b'{"n": 2}'
    assert reads.message(pages.shop, 5).application_properties == {"region": ("string", "us")}
    record = AuditRecord.objects.latest("pk")
    assert (record.action, record.target, record.outcome) == ("edit", "message 5", "done")


def test_from_a_list_one_returns_to_it(pages, as_):
    operator = as_("operator")
    page = body_of(operator.get(f"/entities/{pages.at}?tab=scheduled&m=6"))
    url = re.search(rf'href="(/edit/{pages.at}/6[^"]*)"', page)[1].replace("&amp;", "&")
    values = opened(operator, url)
    response = operator.post(url, values | {"body": "sooner"})
    assert response["Location"] == f"/entities/{pages.at}?tab=scheduled&m=6"
    assert "sooner" in body_of(operator.get(response["Location"]))
    assert operator.post(f"/edit/{pages.at}/6?back=//evil.example/", opened(operator, url) | {"body": "x"})["Location"] == (
        f"/messages/{pages.at}/6"
    )


def test_what_was_not_changed_is_not_edited(pages, as_):
    operator = as_("operator")
    values = opened(operator, f"/edit/{pages.at}/5")
    response = operator.post(f"/edit/{pages.at}/5", values)
    assert response.status_code == 400 and "Nothing is changed yet." in body_of(response)
    operator.post(f"/edit/{pages.at}/5", values | {"property_value": ["us", "", ""]})
    assert body(pages.shop, 5) == b'{"n": 1}', "its body is not written again as it was shown"


def test_json_that_would_be_broken_needs_a_confirmation(pages, as_):
    operator = as_("operator")
    values = opened(operator, f"/edit/{pages.at}/5") | {"body": '{"n": }'}
    response = operator.post(f"/edit/{pages.at}/5", values)
    page = body_of(response)
    assert response.status_code == 422 and "The body was JSON and no longer is: Expecting value at line 1, column 7." in page
    assert '{"n": }' in page and body(pages.shop, 5) == b'{"n": 1}'
    assert operator.post(f"/edit/{pages.at}/5", values | {"anyway": "1"}).status_code == 302
    assert body(pages.shop, 5) == b'{"n": }'


def test_a_message_that_changed_since_it_was_opened_is_not_overwritten(pages, as_):
    """Two editors: the second one is told, keeps what was typed, and can open it again."""
    operator, other = as_("operator"), as_("operator")
    first, second = opened(operator, f"/edit/{pages.at}/5"), opened(other, f"/edit/{pages.at}/5")
    assert operator.post(f"/edit/{pages.at}/5", first | {"body": '{"n": 2}'}).status_code == 302
    response = other.post(f"/edit/{pages.at}/5", second | {"body": '{"n": 3}'})
    page = body_of(response)
    assert response.status_code == 409 and "has changed since you opened it. Nothing was changed; open it again." in page
    assert '{"n": 3}' in page and f'name="version" value="{second["version"]}"' in page and "Open it in a new tab" in page
    assert other.post(f"/edit/{pages.at}/5", second | {"body": '{"n": 3}'}).status_code == 409, "sent again, it is refused again"
    assert body(pages.shop, 5) == b'{"n": 2}'
    assert AuditRecord.objects.filter(action="edit", outcome="refused").count() == 2


def test_a_message_that_was_received_meanwhile_is_refused_with_what_to_do(pages, as_):
    operator = as_("operator")
    values = opened(operator, f"/edit/{pages.at}/5")
    service_bus.receive(pages.shop, 1, actor=WORKER)
    response = operator.post(f"/edit/{pages.at}/5", values | {"body": "x", "anyway": "1"})
    page = body_of(response)
    assert response.status_code == 409 and "is held by worker" in page.replace("process:", "")
    assert "release its lock first" in page and body(pages.shop, 5) == b'{"n": 1}'


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"body": '"' + "x" * 300_000 + '"'}, "at most 262,144 are allowed"),
        ({"property_type": ["int", "string", "string"]}, "'eu' is not a valid int"),
        ({"reason": "x" * 501}, "Ensure this value has at most 500 characters"),
    ],
)
def test_an_error_is_shown_at_its_field(pages, as_, change, says):
    operator = as_("operator")
    response = operator.post(f"/edit/{pages.at}/5", opened(operator, f"/edit/{pages.at}/5") | change)
    page = body_of(response)
    assert response.status_code == 400 and "Not saved. Fix the errors below." in page
    assert re.search(r'class="error"[^>]*>[^<]*' + re.escape(says), page), page
    assert body(pages.shop, 5) == b'{"n": 1}'


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message(b"\xff\x00", properties={"a": 1}), "is binary, or has line endings that a form cannot keep"),
        (Message(b"a\r\nb"), "is binary, or has line endings"), (Message(b"x" * 70_000), "is larger than 64 KB"),
        (Message(service_bus.encode_body(BodyKind.VALUE, 5), body_kind=BodyKind.VALUE), "has AMQP types"),
    ],
)  # fmt: skip
def test_a_body_that_no_form_can_keep_stays_while_properties_change(pages, as_, message, says):
    operator = as_("operator")
    [number] = service_bus.send(pages.shop, [message])
    url, before = f"/edit/{pages.at}/{number}", body(pages.shop, number)
    page = body_of(operator.get(url))
    assert f"The body {says}" in page and "<textarea" not in page[page.index("<main") :]
    values = opened(operator, url) | {"property_name": ["b"], "property_type": ["boolean"], "property_value": ["true"]}
    assert operator.post(url, values).status_code == 302
    detail = reads.message(pages.shop, number)
    assert (body(pages.shop, number), detail.body_kind) == (before, message.body_kind)
    assert detail.application_properties == {"b": ("boolean", "true")}


def test_properties_keep_their_types_and_line_breaks(pages, as_):
    operator = as_("operator")
    sent = {"long": Typed("long", 5), "text": "two\nlines", "plain": "x"}
    [number] = service_bus.send(pages.shop, [Message(b"x", properties=sent)])
    stored = reads.message(pages.shop, number).application_properties
    url = f"/edit/{pages.at}/{number}"
    assert "Not shown, and kept: text (with line breaks)" in body_of(operator.get(url))
    values = opened(operator, url)
    at = values["property_name"].index("plain")
    values["property_value"] = [*values["property_value"][:at], "y", *values["property_value"][at + 1 :]]
    assert operator.post(url, values).status_code == 302
    assert reads.message(pages.shop, number).application_properties == {**stored, "plain": ("string", "y")}


def test_the_record_of_a_message_that_left_has_the_properties_that_it_had_last(pages, as_):
    operator = as_("operator")
    service_bus.edit(pages.shop, 5, properties={"region": "mars"})
    service_bus.purge(pages.shop, sequence_numbers=[5])
    page = body_of(operator.get(f"/messages/{pages.at}/5"))
    properties = page[page.index('id="application-properties"') :]
    assert "mars" in properties[: properties.index("</dl>")]


def test_a_viewer_is_refused(pages, office, as_):
    viewer = as_("viewer")
    for url in (f"/edit/{pages.at}/5", f"/edit/{pages.stored}/8", f"/edit/{office.at}/mail/1"):
        assert viewer.get(url).status_code == 403
        assert viewer.post(url, {"body": "x", "version": "1"}).status_code == 403


def test_the_text_of_a_storage_message_is_edited(pages, as_):
    operator = as_("operator")
    url, held = f"/edit/{pages.stored}/8", f"/messages/{pages.stored}/2"
    assert "Edit…" not in body_of(operator.get(held))
    page = body_of(operator.get(url))
    assert ">Text<" in page and "property_name" not in page
    assert operator.post(url, opened(operator, url) | {"body": '{"n": 9}'}).status_code == 302
    page = body_of(operator.get(f"/messages/{pages.stored}/8"))
    assert "Edited the text of message 8." in page and "Edited the text</" in page
    assert body(pages.jobs, 8) == b'{"n": 9}'
    response = operator.post(url, opened(operator, url) | {"body": "x" * 65_537, "anyway": "1"})
    assert response.status_code in (400, 409) and "65,536" in body_of(response)


def test_a_storage_message_that_no_form_can_keep_has_nothing_to_save(pages, as_):
    queue_storage.put(pages.jobs, "a\r\nb")
    page = body_of(as_("operator").get(f"/edit/{pages.stored}/9"))
    assert "The text is binary, or has line endings" in page and "Save message" not in page and ">Cancel</a>" in page


def test_a_rabbitmq_message_is_edited_and_its_headers_keep_their_types(office, as_):
    operator, address = as_("operator"), EntityAddress(office.vhost, "mail")
    headers = {"small": Typed("byte", 5), "town": "graz"}
    publication = rabbitmq.Publication(b"dear", "", "mail", rabbitmq.Properties(headers=headers))
    [published] = rabbitmq.publish(office.vhost, [publication])
    [(_, number)] = published.queues
    url = f"/edit/{office.at}/mail/{number}"
    values = opened(operator, url)
    values["header_value"] = ["wien" if value == "graz" else value for value in values["header_value"]]
    assert operator.post(url, values | {"body": "dearest"}).status_code == 302
    assert reads.message(address, number).application_properties == {"small": ("byte", "5"), "town": ("longstr", "wien")}
    assert body(address, number) == b"dearest"
    assert "Edited the body and the headers</" in body_of(operator.get(f"/messages/{office.at}/mail/{number}"))


def test_a_dead_letter_of_rabbitmq_keeps_its_deaths(office, as_):
    operator, address = as_("operator"), EntityAddress(office.vhost, "dead")
    url = f"/edit/{office.at}/dead/1"
    assert "x-death" not in opened(operator, url)["header_name"]
    before = reads.message(address, 1).application_properties
    values = opened(operator, url) | {"header_name": ["added"], "header_type": ["string"], "header_value": ["1"]}
    assert operator.post(url, values).status_code == 302
    after = reads.message(address, 1).application_properties
    assert after["x-death"] == before["x-death"] and after["added"] == ("longstr", "1")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_message_is_edited_from_the_pane_by_keyboard(browser, transactional_db, shop, size):  # noqa: F811
    page = browser("operator", viewport=size, bypass_csp=True)
    page.goto(f"/entities/{shop.namespace}/{shop.path}?m=5")
    page.locator("#pane").get_by_role("link", name="Edit…").press("Enter")
    expect(page.get_by_role("heading", name="Edit message 5")).to_be_visible()
    assert problems(page) == []
    page.get_by_role("textbox", name="Body").fill('{"n": 7}')
    page.get_by_role("button", name="Save message").press("Enter")
    expect(page.locator("#pane").get_by_text("Edited the body")).to_be_visible()
    assert page.url.endswith("?m=5") and body(shop, 5) == b'{"n": 7}'
