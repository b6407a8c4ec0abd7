"""Guessing passwords is limited by account and by address, said plainly and audited; nobody can lock another person out."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from explorer.models import AuditRecord
from explorer.people import sign_in, sign_in_limits
from explorer.people.sign_in_limits import TRIES, TRIES_PER_ACCOUNT, TRIES_PER_ADDRESS, WINDOW

PASSWORD = "open sesame 7"
HOME, ELSEWHERE = "192.0.2.1", "203.0.113.9"


@pytest.fixture(autouse=True)
def _fast_hashes(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ada(person):
    user = person("administrator", username="ada")
    user.set_password(PASSWORD)
    user.save()
    return user


def attempt(password: str = "wrong", *, name: str = "ada", address: str = ELSEWHERE, path: str = "/sign-in/"):
    return Client().post(path, {"username": name, "password": password}, REMOTE_ADDR=address)


def attempts(count: int, **more) -> list[int]:
    return [attempt(**more).status_code for _ in range(count)]


def test_after_several_failures_even_the_right_password_is_delayed(ada):
    """Regression: 40 wrong passwords, and then the right one signed in."""
    assert attempts(TRIES) == [200] * TRIES
    answer = attempt(PASSWORD)
    assert answer.status_code == 429
    assert "Too many failed attempts." in answer.content.decode()
    assert "15 minutes, or use a one-time sign-in link" in " ".join(answer.content.decode().split())
    assert 0 < int(answer.headers["Retry-After"]) <= WINDOW.total_seconds()
    assert "_auth_user_id" not in answer.client.session


def test_the_delay_ends(ada):
    attempts(TRIES)
    AuditRecord.objects.update(at=timezone.now() - WINDOW)
    assert attempt(PASSWORD).status_code == 302


def test_attempts_during_the_delay_do_not_extend_it(ada):
    attempts(TRIES)
    before = AuditRecord.objects.count()
    assert attempts(10) == [429] * 10
    assert AuditRecord.objects.count() == before


def test_the_admins_sign_in_has_the_same_limits(ada):
    answer = Client().post("/admin/login/?next=/admin/", {"username": "ada", "password": PASSWORD}, REMOTE_ADDR=ELSEWHERE)
    assert answer.url.startswith(reverse("explorer:sign_in"))
    attempts(TRIES)
    assert attempt(PASSWORD, path=answer.url).status_code == 429


def test_every_other_sign_in_form_is_limited(ada, rf):
    from django.contrib.admin.forms import AdminAuthenticationForm

    attempts(TRIES)
    request = rf.post("/elsewhere/", REMOTE_ADDR=ELSEWHERE)
    assert not AdminAuthenticationForm(request, {"username": "ada", "password": PASSWORD}).is_valid()
    assert request.sign_in_wait <= WINDOW


def test_failures_from_other_addresses_do_not_lock_a_user_out(ada):
    """An address that the account has signed in from lately is blocked by nobody else; a new one is, and a link helps there."""
    assert attempt(PASSWORD, address=HOME).status_code == 302
    for number in range(TRIES_PER_ACCOUNT):
        attempt(address=f"203.0.113.{number}")
    assert attempt(PASSWORD, address=HOME).status_code == 302
    assert attempt(PASSWORD, address="198.51.100.7").status_code == 429
    ada.refresh_from_db()
    link = sign_in.link_for(ada)
    assert Client().post(link, REMOTE_ADDR="198.51.100.7").status_code == 302
    assert attempt(PASSWORD, address="198.51.100.7").status_code == 302


def test_an_address_unused_for_long_is_forgotten(ada):
    attempt(PASSWORD, address=HOME)
    AuditRecord.objects.update(at=timezone.now() - sign_in_limits.KNOWN_FOR)
    for number in range(TRIES_PER_ACCOUNT):
        attempt(address=f"203.0.113.{number}")
    assert attempt(PASSWORD, address=HOME).status_code == 429


def test_a_link_signs_in_while_passwords_are_delayed(ada):
    attempts(TRIES)
    assert Client().post(sign_in.link_for(ada), REMOTE_ADDR=ELSEWHERE).status_code == 302
    assert attempt(PASSWORD).status_code == 302


def test_an_address_that_tries_many_accounts_is_delayed(ada):
    assert {attempt(name=f"user{n}").status_code for n in range(TRIES_PER_ADDRESS)} == {200}
    assert attempt(PASSWORD).status_code == 429
    assert attempt(PASSWORD, address=HOME).status_code == 302


def test_a_success_resets_the_count(ada):
    for _ in range(3):
        assert attempts(TRIES - 1) == [200] * (TRIES - 1)
        assert attempt(PASSWORD).status_code == 302


def test_unknown_accounts_are_treated_alike(db):
    assert attempts(TRIES + 1, name="nobody") == [200] * TRIES + [429]


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
        ("", None),
    ],
)
def test_the_addresses_of_one_client_count_together(rf, given, counted):
    assert sign_in_limits.address_of(rf.get("/", REMOTE_ADDR=given)) == counted


def test_the_audit_records_sign_ins_and_the_limit(ada):
    attempt(PASSWORD, address=HOME)
    attempts(TRIES)
    records = [(record.actor, record.action, record.target, record.outcome) for record in AuditRecord.objects.order_by("pk")]
    failed = ("user:ada", "sign in", f"from {ELSEWHERE}", "refused")
    limit = ("user:ada", "sign in: limit", f"from {ELSEWHERE}", "refused")
    assert records == [("user:ada", "sign in", f"from {HOME}", "done"), *[failed] * TRIES, limit]
    assert "further attempts are refused until" in AuditRecord.objects.latest("pk").detail
    assert PASSWORD not in str(list(AuditRecord.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_concurrent_attempts_are_counted(ada):
    def guess(number: int) -> int:
        try:
            return attempt(PASSWORD if number == 39 else "wrong").status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(guess, range(40)))
    assert answers.count(200) == TRIES
    assert answers[-1] == 429


def test_the_limits_are_tolerant_enough_for_users():
    assert timedelta(minutes=5) <= WINDOW <= timedelta(hours=1)
    assert min(TRIES_PER_ADDRESS, TRIES_PER_ACCOUNT) > TRIES
