"""Fields that name one of very many entities: what they offer, without and with JavaScript, and what they refuse."""

import html
import re

import pytest

from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from explorer.service_bus import names
from tests.html import body_of


@pytest.fixture
def few(monkeypatch):
    """More than two are very many."""
    monkeypatch.setattr(names, "MOST_LISTED", 2)


@pytest.fixture
def no_overview(monkeypatch):
    """Whoever asks for the whole overview fails."""
    monkeypatch.delattr("broker_core.reads.overview")


def options(response) -> list[str]:
    return [html.unescape(text) for text in re.findall(r'<option value="([^"]*)">', body_of(response))]


def filled(form) -> dict:
    """What a browser would send back with a form."""
    return {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}


@pytest.mark.usefixtures("no_overview")
def test_forms_do_not_ask_for_the_overview(pages, as_):
    client = as_("administrator")
    space = pages.shop.namespace
    for address in (
        "/new/queue/",
        "/new/subscription/",
        f"/settings/{pages.at}",
        f"/delete-namespace/{space}/",
        f"/analyses/?namespace={space}",
    ):
        assert client.get(address).status_code == 200, address
    assert "has 6 entities" in body_of(client.get(f"/delete-namespace/{space}/"))


def test_forward_targets_are_the_other_entities_of_the_namespace(pages, as_):
    client, space = as_("viewer"), pages.shop.namespace
    assert options(client.get("/names/targets/", {"namespace": space})) == ["carts", "eu/orders", "market/news"]
    assert options(client.get("/names/targets/", {"namespace": space, "forward_to": "s"})) == [
        "carts",
        "eu/orders",
        "market/news",
    ]
    assert options(client.get("/names/targets/", {"namespace": space, "forward_to": "ORD"})) == ["eu/orders"]
    but = {"namespace": space, "forward_dead_lettered_messages_to": "o", "but": "eu/orders"}
    assert options(client.get("/names/targets/", but)) == []
    assert options(client.get("/names/targets/", {"topic": str(pages.market), "forward_to": "carts"})) == ["carts"]
    assert options(client.get("/names/targets/")) == []
    assert options(client.get("/names/topics/", {"topic": f"{space}/m"})) == [str(pages.market)]
    assert client.get("/names/everything/").status_code == 404


def test_names_require_a_role(pages, as_, client):
    assert client.get("/names/topics/").status_code == 302
    assert as_("").get("/names/topics/").status_code == 403


def test_a_settings_page_suggests_entities_and_loads_more(pages, as_, few):
    response = as_("administrator").get(f"/settings/{pages.at}")
    datalist = body_of(response).partition('<datalist id="forward-targets">')[2].partition("</datalist>")[0]
    assert re.findall(r'value="([^"]*)"', datalist) == ["carts"]
    [address] = set(re.findall(r'hx-get="(/names/[^"]*)"', body_of(response)))
    assert options(as_("viewer").get(f"{html.unescape(address)}&forward_to=news")) == ["market/news"]


def test_a_topic_can_be_typed_among_very_many(pages, as_, few):
    client, space = as_("administrator"), pages.shop.namespace
    for name in ("a", "b"):
        entities.create_topic(EntityAddress(space, name))
    response = client.get("/new/subscription/")
    assert 'list="topics"' in body_of(response) and len(response.context["form"].topics) == 2
    data = filled(response.context["form"]) | {"topic": str(pages.market), "name": "typed"}
    assert client.post("/new/subscription/", data).status_code == 302
    assert entities.get_subscription(pages.market.subscription("typed"))
    for wrong, status, said in (
        (f"{space}/nowhere", 404, "This topic does not exist."),
        ("news", 400, "Enter a namespace, a slash and the name of a topic."),
        ("", 400, "This field is required."),
    ):
        refused = client.post("/new/subscription/", data | {"topic": wrong, "name": "other"})
        assert (refused.status_code, refused.context["form"].errors.get("topic")) == (status, [said])


# In a browser


@pytest.fixture
def browser_page(transactional_db, live_site, new_context, sign_in, person):
    context = new_context(base_url=live_site)
    sign_in(context, person("administrator", username="namer"))
    return context.new_page()


@pytest.mark.slow
def test_a_field_is_autocompleted(browser_page, shop):
    for n in range(3):
        entities.create_queue(EntityAddress(shop.namespace, f"target-{n}"))
    browser_page.goto(f"/settings/{shop.namespace}/{shop.path}")
    for field in ("forward_to", "forward_dead_lettered_messages_to"):
        browser_page.locator(f"#id_{field}").press_sequentially("GET-1")
        browser_page.wait_for_function(
            "() => [...document.querySelectorAll('#forward-targets option')].map(o => o.value).join() === 'target-1'"
        )
        browser_page.locator(f"#id_{field}").fill("")
        browser_page.wait_for_function("() => document.querySelectorAll('#forward-targets option').length === 3")
