"""Shared pages and templates name no family: what differs is asked of the registry, so that a family's folder can be removed."""

import re
from pathlib import Path

import pytest
from django.template.loader import get_template

from broker_core.common.family import installed as installed_in_the_broker
from broker_core.common.types import Family
from explorer.demo.parts import parts
from explorer.frames.family import installed, pages_of

ROOT = Path(__file__).parents[2]
NAMES = "|".join(Family)
NAMESPACES = {Family.SERVICE_BUS: "demo", Family.QUEUE_STORAGE: "photolab", Family.RABBITMQ: "post-office"}  # of the demo
NAMES_FAMILIES = (*Family, "analysis", "site", "migrations")  # they create queues for generated events, and mount front ends
SHARED_CODE = [
    path
    for path in (ROOT / "explorer").rglob("*.py")
    if path.name != "families.py" and path.relative_to(ROOT / "explorer").parts[0] not in NAMES_FAMILIES
]
SHARED_TEMPLATES = [*(ROOT / "templates").rglob("*.html")]
IN_CODE = re.compile(rf"Family\.[A-Z]|\bfamily (==|!=) [\"']|(explorer|broker_core)[\w.]*[. ](import )?({NAMES})\b")
IN_TEMPLATES = re.compile(rf"family\s*(==|!=|in)\s*[\"']|explorer/({NAMES})/|explorer:(rabbitmq|storage)_|\b({NAMES})\b")
TERMS = re.compile(r"(word|it)\.rabbitmq")  # the glossary says of each term what RabbitMQ calls it


@pytest.mark.parametrize("path", SHARED_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_shared_code_names_no_family(path):
    assert [line for line in path.read_text().splitlines() if IN_CODE.search(line)] == []


@pytest.mark.parametrize("path", SHARED_TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shared_templates_name_no_family(path):
    assert [line for line in path.read_text().splitlines() if IN_TEMPLATES.search(TERMS.sub("", line))] == []


def test_every_family_of_the_broker_has_pages():
    assert {family.family for family in installed()} == {family.family for family in installed_in_the_broker()}


@pytest.mark.parametrize("family", list(Family))
def test_the_parts_that_a_family_registers_exist(family):
    for template in pages_of(family).parts.values():
        assert get_template(template)


@pytest.mark.parametrize("family", list(Family))
def test_a_family_without_its_demo_leaves_the_others_running(family, monkeypatch):
    monkeypatch.setattr(pages_of(family), "demo", "")
    assert {part.NAMESPACE for part in parts()} == {"demo", "photolab", "post-office"} - {NAMESPACES[family]}
