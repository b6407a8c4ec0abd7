"""Which namespaces are sandboxes, and whose. Their names begin with PREFIX, so that no other namespace costs a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, Right


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)
PREFIX = "learn"


def may_be_one(namespace: str | None) -> bool:
    return namespace is not None and namespace.lower().startswith(PREFIX) and "\x00" not in namespace  # PostgreSQL refuses NUL


def is_owner(user: Any, namespace: str) -> bool:
    """Whether the namespace is a sandbox of this user."""
    from .models import Sandbox

    return may_be_one(namespace) and Sandbox.objects.filter(namespace=namespace.lower(), owner_id=user.pk).exists()


def is_of_another(user: Any, namespace: str | None) -> bool:
    """Whether the namespace is a sandbox of somebody else."""
    from .models import Sandbox

    if namespace is None or not may_be_one(namespace):
        return False
    return Sandbox.objects.filter(namespace=namespace.lower()).exclude(owner_id=getattr(user, "pk", None)).exists()


def hides_others(user: Any, actor: Actor) -> bool:
    """Whether lists about all namespaces leave out the sandboxes of others for this person. A live page with such a list is
    rendered for one person."""
    return user is None or actor.rights is not Right.ALL


def require_access(user: Any, actor: Actor, names: Iterable[str]) -> None:
    """Raise EntityNotFound if one of these namespaces is the sandbox of somebody else, which only administrators may see."""
    if hides_others(user, actor) or actor.namespace:
        for name in names:
            if is_of_another(user, name):
                raise EntityNotFound(name, "namespace")


def hidden_sandboxes(user: Any, actor: Actor, *, own: bool) -> tuple[str, ...]:
    """The namespaces that a list about all namespaces leaves out: every sandbox, the same for all people. own: only those of
    others, and none for administrators."""
    from .models import Sandbox

    sandboxes = Sandbox.objects.all()
    if own:
        sandboxes = sandboxes.exclude(owner_id=getattr(user, "pk", None)) if hides_others(user, actor) else sandboxes.none()
    return tuple(sandboxes.values_list("namespace", flat=True))


def of_others(user: Any) -> tuple[str, ...]:
    """The sandboxes of others, which lists to choose from leave out for everybody."""
    from .models import Sandbox

    return tuple(Sandbox.objects.exclude(owner_id=getattr(user, "pk", None)).values_list("namespace", flat=True))


def without_of_others(user: Any, namespaces: Iterable[N]) -> list[N]:
    """These namespaces without the sandboxes of others."""
    hidden = of_others(user)
    return [namespace for namespace in namespaces if namespace.name.lower() not in hidden]


def without(namespaces: Iterable[N], keep: str = "") -> list[N]:
    """These namespaces without the sandboxes, which would be in the way of others. keep: the name of one that stays."""
    from .models import Sandbox

    rows = list(namespaces)
    possible = [row.name.lower() for row in rows if may_be_one(row.name) and row.name.lower() != keep.lower()]
    existing = set(Sandbox.objects.filter(namespace__in=possible).values_list("namespace", flat=True)) if possible else set()
    return [row for row in rows if row.name.lower() not in existing]
