"""Export and import of configuration in the browser, and the live tail."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress, Message
from explorer.models import AuditRecord
from tests.html import body_of

PAGE = "/configuration/"


def exported(client, *names):
    answer = client.post(f"{PAGE}export/", {"namespace": names})
    return b"".join(answer.streaming_content)


def sent(content):
    return SimpleUploadedFile("vitrine.jsonl", content)


def test_what_was_exported_is_previewed_and_imported_without_messages(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    html = body_of(client.post(PAGE, {"file": sent(content), "name": "copy", "do": "preview"}))
    assert "Nothing was imported yet." in html
    assert "market/news" in html
    assert all(one.name != "copy" for one in reads.namespaces())
    text = content.decode()
    assert "Imported copy: 6 entities." in body_of(client.post(PAGE, {"text": text, "name": "copy", "do": "import"}))
    copies = {row.address.path: row for row in reads.overview("copy")}
    assert set(copies) == {row.address.path for row in reads.overview(market.namespace)}
    assert sum(row.counts.total for row in copies.values()) == 0
    assert len(reads.list_messages(EntityAddress("copy", "eu/orders")).rows) == 0
    assert AuditRecord.objects.filter(action="import configuration", outcome="done").exists()
    service_bus.send(EntityAddress("copy", "eu/orders"), [Message(b"x")])


def test_a_namespace_that_exists_is_refused_and_nothing_changes(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    for action in ("preview", "import"):
        answer = client.post(PAGE, {"file": sent(content), "do": action})
        assert answer.status_code in (400, 409)
        assert "exists" in body_of(answer)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "Choose a file."), (b"\xff\xfe", "not text in UTF-8"), (b"[]", "line 1"), (b"{}\n" * 1_500_000, "larger than 4 MB")],
)
def test_a_file_that_is_no_export_is_refused_at_its_field(broker_database, as_, content, says):
    answer = as_("administrator").post(PAGE, {"file": sent(content), "do": "preview"})
    assert answer.status_code == 400
    assert says in body_of(answer)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_an_administrator_may(market, as_, role):
    client = as_(role)
    assert "requires the administrator role" in body_of(client.get(PAGE))
    assert client.post(f"{PAGE}export/", {"namespace": market.namespace}).status_code == 403
    assert client.post(PAGE, {"text": "{}", "do": "import"}).status_code == 403


def test_an_export_of_nothing_says_what_to_choose(broker_database, as_):
    assert as_("administrator").post(f"{PAGE}export/").status_code == 400


def test_the_tail_shows_the_newest_events_of_what_was_asked_for(shop, jobs, as_):
    client = as_("viewer")

    def kinds(query):
        return [(str(event.address), event.kind.name) for event, _ in client.get(f"/tail/?{query}").context["rows"]]

    service_bus.send(shop, [Message(b"x", message_id="last")])
    assert kinds(f"entity={shop}")[0] == (str(shop), "SENT")
    assert {address for address, _ in kinds(f"namespace={jobs.namespace}")} == {str(jobs), f"{jobs}-poison"}
    assert {kind for _, kind in kinds(f"entity={shop}&kinds=failures")} == {"DEAD_LETTERED"}
    assert len(kinds(f"entity={shop}&id=last")) == 1
    assert client.get("/tail/?entity=no/such").status_code == 404
    assert client.get("/tail/?kinds=nonsense").status_code == 400
