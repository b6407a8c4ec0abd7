"""manage.py seed: creates what a site needs before its first page."""

from contextlib import suppress

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.management.base import BaseCommand
from django.db import transaction

from broker_core import namespaces
from broker_core.celery_transport import FAMILY
from broker_core.common.errors import EntityExists
from broker_core.common.family import FamilyDefinition, installed
from broker_core.common.types import Actor, Tier
from explorer.demo.set_up import set_up_once
from explorer.models import SeededNamespace
from explorer.people import users
from explorer.people.roles import ADMINISTRATOR, OPERATOR, VIEWER

ADMIN = "admin"
CONFIGURED_IN_ADMIN = ("auth", "broker_core", "django_celery_beat", "explorer")  # apps
NAMESPACES = (("system", "Used by Vitrine itself: sweeps and analyses"), ("demo", "A web shop (demo)"))


class Command(BaseCommand):
    """Runs at each start and leaves existing objects as they are. The demo is set up once, unless VITRINE_DEMO=0, and so are the
    well-known namespaces: what users change or delete afterwards is left as it is."""

    help = "Create missing roles, the first administrator, namespaces, those that clients expect, and the demo's queues."

    def handle(self, **options) -> None:
        with transaction.atomic():
            _create_roles()
            _create_administrator()
        for name, description in NAMESPACES:
            namespaces.ensure_namespace(name, FAMILY, description, is_system=name == "system")
        for definition in installed():
            _create_well_known(definition)
        if settings.VITRINE_DEMO:
            set_up_once()


def _create_well_known(definition: FamilyDefinition) -> None:
    """Create the well-known namespace unless that was done before. A concurrent second call waits, then finds it done."""
    wanted = definition.well_known
    with transaction.atomic():
        _, is_new = SeededNamespace.objects.get_or_create(name=wanted.name)
        if is_new:
            with suppress(EntityExists):  # a user's own
                definition.create_namespace(wanted.name, wanted.description, Tier.STANDARD, Actor.local())


def _create_roles() -> None:
    permissions = {
        VIEWER: [],
        OPERATOR: [users.see_bodies_permission()],
        ADMINISTRATOR: Permission.objects.filter(content_type__app_label__in=CONFIGURED_IN_ADMIN),
    }
    for role, role_permissions in permissions.items():
        group, is_new = Group.objects.get_or_create(name=role)
        if is_new:
            group.permissions.set(role_permissions)


def _create_administrator() -> None:
    """Create an administrator who signs in with a link, unless there is an active superuser. The account has no password."""
    known = get_user_model().objects
    if known.filter(is_superuser=True, is_active=True).exists():
        return
    admin, is_new = known.get_or_create(username=ADMIN, defaults={"is_staff": True, "is_superuser": True})
    if is_new:
        admin.set_unusable_password()
        admin.save()
    admin.groups.add(Group.objects.get(name=ADMINISTRATOR))
