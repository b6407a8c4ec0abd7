"""Limits password attempts, counted per account and address in the audit records of sign-ins.

Within WINDOW, TRIES failures are allowed for an account from one address, TRIES_PER_ADDRESS for an address with any account, and
TRIES_PER_ACCOUNT for an account from any address. The last two do not apply to an address from which the account has signed in
recently, so that nobody can lock out a user from elsewhere. One-time links are not limited, and make an address known.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import QuerySet
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from broker_core.common.types import Actor
from broker_core.wire.peers import network_of
from explorer import audit
from explorer.models import AuditRecord

ACTION = AuditRecord.SIGN_IN
WINDOW = timedelta(minutes=15)
TRIES, TRIES_PER_ADDRESS, TRIES_PER_ACCOUNT = 5, 20, 20
KNOWN_FOR = timedelta(days=90)
_MOST_CHARACTERS = 150  # of a name, as users have them


class LimitedPasswords(ModelBackend):
    """Django's users and passwords. While attempts are limited, no password is checked, and `request.sign_in_wait` is set."""

    def authenticate(self, request, username=None, password=None, **kwargs):
        name, address = (username or kwargs.get("username") or "")[:_MOST_CHARACTERS], address_of(request)
        if not name or password is None or address is None:
            return super().authenticate(request, username, password, **kwargs)
        _require_no_wait(request, name, address)
        user = super().authenticate(request, username, password, **kwargs)
        with transaction.atomic():
            _one_at_a_time(name, address)
            _require_no_wait(request, name, address)  # concurrent attempts count, too
            if user is None:
                _record_failure(name, address)
        return user


@receiver(user_logged_in, dispatch_uid="explorer.record_sign_in")
def record_sign_in(sender, request: HttpRequest, user: AbstractBaseUser, **kwargs) -> None:
    """Audit a sign-in by password or link."""
    address = address_of(request)
    if address is not None:
        audit.done(Actor("user", user.get_username()), ACTION, target=_target(address))


def address_of(request: HttpRequest | None) -> str | None:
    """The client's address; for IPv6 its /64 network, since one client has many addresses. None outside a request."""
    text = request.META.get("REMOTE_ADDR") if request is not None else None
    return network_of(text) if text else None


def wait(name: str, address: str) -> timedelta | None:
    """How long the account must wait at this address; None: it need not wait."""
    now = timezone.now()
    actor, target = str(Actor("user", name)), _target(address)
    sign_ins = AuditRecord.objects.filter(action=ACTION)
    last = sign_ins.filter(actor=actor, target=target, outcome=AuditRecord.Outcome.DONE, at__gt=now - KNOWN_FOR).order_by("-at")
    known_at = last.values_list("at", flat=True).first()
    failed = sign_ins.filter(outcome=AuditRecord.Outcome.REFUSED, at__gt=now - WINDOW)
    from_address = failed.filter(actor=actor, target=target)
    ends = [_end(from_address.filter(at__gt=known_at) if known_at else from_address, TRIES)]
    if known_at is None:
        ends += [_end(failed.filter(target=target), TRIES_PER_ADDRESS), _end(failed.filter(actor=actor), TRIES_PER_ACCOUNT)]
    return max((end - now for end in ends if end is not None), default=None)


def _end(failed: QuerySet[AuditRecord], limit: int) -> datetime | None:
    """When fewer than `limit` failures will be in the window; None: there are fewer now."""
    oldest_that_counts = failed.order_by("-at").values_list("at", flat=True)[limit - 1 : limit].first()
    return None if oldest_that_counts is None else oldest_that_counts + WINDOW


def _require_no_wait(request: HttpRequest, name: str, address: str) -> None:
    remaining = wait(name, address)
    if remaining is not None:
        request.sign_in_wait = remaining
        raise PermissionDenied("Too many failed sign-ins.")


def _record_failure(name: str, address: str) -> None:
    audit.record_refusal(Actor("user", name), ACTION, target=_target(address), detail="Wrong name or password.")
    remaining = wait(name, address)
    if remaining is not None:
        until = f"{timezone.now() + remaining:%H:%M:%S} UTC"
        detail = f"Too many failed sign-ins: further attempts are refused until {until}."
        audit.record_refusal(Actor("user", name), f"{ACTION}: limit", target=_target(address), detail=detail)


def _one_at_a_time(name: str, address: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(7461, hashtext(%s)), pg_advisory_xact_lock(7462, hashtext(%s))", [address, name]
        )


def _target(address: str) -> str:
    return f"from {address}"
