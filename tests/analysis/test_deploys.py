"""Marking deploys: on the page, and by a command of a pipeline."""

from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.charts import changes
from explorer.models import AuditRecord, Sandbox
from explorer.people.roles import OPERATOR
from tests.html import body_of

from .test_pages import signed_in

PAGE = "/analyses/mark-deploy/"


def test_a_deploy_can_be_marked_and_links_to_the_incidents(client, viewer):
    namespaces.ensure_namespace("reports", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("reports", "q"))
    queue = Entity.objects.get(path="q")
    operator = signed_in(client, OPERATOR)
    response = operator.post(f"{PAGE}?queue={queue.pk}", {"name": " shop 1.4 "})
    assert response.status_code == 302 and "/incidents/" in response["Location"]
    marked = AuditRecord.objects.get(action=changes.DEPLOY).at
    [deploy] = changes.deploys("reports", marked, marked.replace(year=marked.year + 1))
    assert (deploy.name, deploy.at) == ("shop 1.4", marked)
    assert operator.post(f"{PAGE}?queue={queue.pk}", {"name": " "}).status_code == 400
    assert operator.get(PAGE).status_code == 404
    client.force_login(get_user_model().objects.get(username="viewer"))
    assert "requires the operator role" in body_of(client.get(PAGE, {"queue": queue.pk}))
    assert client.post(f"{PAGE}?queue={queue.pk}", {"name": "x"}).status_code == 403
    marks = AuditRecord.objects.filter(action=changes.DEPLOY)
    assert [(mark.outcome, mark.target) for mark in marks] == [("refused", "reports: x"), ("done", "reports: shop 1.4")]


def test_a_pipeline_can_mark_a_deploy_with_a_command(db):
    namespaces.ensure_namespace("reports", Family.SERVICE_BUS)
    out = StringIO()
    call_command("mark_deploy", "shop 2", namespace=["REPORTS"], stdout=out)
    assert out.getvalue() == "Marked the deploy of shop 2 in reports.\n"
    assert AuditRecord.objects.get(action="mark deploy").actor == "process:mark_deploy"
    namespaces.ensure_namespace("learn-1", Family.SERVICE_BUS)
    Sandbox.objects.create(namespace="learn-1", owner=get_user_model().objects.create_user("ada"))
    call_command("mark_deploy", "shop 3", stdout=out)
    assert "learn" not in out.getvalue().splitlines()[-1]
    assert not AuditRecord.objects.filter(target__startswith="learn").exists()
    call_command("mark_deploy", "shop 4", namespace=["learn-1"], stdout=out)
    assert AuditRecord.objects.filter(target="learn-1: shop 4").exists()
    for name, chosen in (("x", ["none"]), ("a\nb", ["reports"])):
        with pytest.raises(CommandError):
            call_command("mark_deploy", name, namespace=chosen)
