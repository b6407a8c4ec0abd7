"""Sign-in with a password or a one-time link, and sign-out.

A link contains the user's id and a digest of the last sign-in, which changes with each sign-in, so that no table is needed.
Opening the link shows a button that a script presses; link previews run no scripts and do not use the link.
"""

from __future__ import annotations

import hashlib
import math

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.models import AbstractUser
from django.contrib.auth.views import LoginView, LogoutView
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

SALT = "explorer.sign_in_link"
EXPIRED = "This link has expired."
USED = "This link has already been used."
UNKNOWN = "This link is incomplete or belongs to another installation."


class LinkRefused(Exception):
    """The link is not valid. The text says why."""


def link_for(user: AbstractUser) -> str:
    """The path of a link that signs `user` in once, within SIGN_IN_LINK_SECONDS (an hour)."""
    return reverse("explorer:sign_in_link", args=[signing.dumps([user.pk, _last_sign_in(user)], salt=SALT)])


class SignIn(LoginView):
    """The form for name and password; 429 while attempts are limited (sign_in_limits)."""

    redirect_authenticated_user = True

    def form_invalid(self, form) -> HttpResponse:
        wait = getattr(self.request, "sign_in_wait", None)
        if wait is None:
            return super().form_invalid(form)
        seconds = math.ceil(wait.total_seconds())
        context = self.get_context_data(form=form, wait_minutes=math.ceil(seconds / 60))
        return self.render_to_response(context, status=429, headers={"Retry-After": str(seconds)})


@sensitive_variables("token")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows the user whom the link signs in; POST signs in. 403 for a used, expired or broken link."""
    try:
        with transaction.atomic():
            user = _user_of(token, lock=request.method == "POST")
            if request.method != "POST":
                return render(request, "registration/sign_in_link.html", {"person": user})
            login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    except LinkRefused as refused:
        return render(request, "registration/link_refused.html", {"reason": str(refused)}, status=403)
    return redirect(settings.LOGIN_REDIRECT_URL)


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """The admin's login URL: redirects to the sign-in page, or refuses a signed-in user without staff status.

    Otherwise the sign-in page would redirect such a user back to the admin, in a loop.
    """
    if request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied("The admin requires staff status. Ask an administrator, or sign in with another account.")
    query = request.META.get("QUERY_STRING", "")
    return redirect(f"{reverse('explorer:sign_in')}{f'?{query}' if query else ''}")


def _user_of(token: str, *, lock: bool) -> AbstractUser:
    try:
        user_id, last_sign_in = signing.loads(token, salt=SALT, max_age=settings.SIGN_IN_LINK_SECONDS)
    except signing.SignatureExpired as exc:
        raise LinkRefused(EXPIRED) from exc
    except (signing.BadSignature, ValueError) as exc:
        raise LinkRefused(UNKNOWN) from exc
    users = get_user_model().objects.select_for_update() if lock else get_user_model().objects
    user = users.filter(pk=user_id, is_active=True).first()
    if user is None:
        raise LinkRefused(UNKNOWN)
    if _last_sign_in(user) != last_sign_in:
        raise LinkRefused(USED)
    return user


def _last_sign_in(user: AbstractUser) -> str:
    at = user.last_login.isoformat() if user.last_login else "never"
    return hashlib.sha256(f"{user.pk} {at} {user.password}".encode()).hexdigest()[:16]


urlpatterns = [
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-in/<str:token>/", sign_in_link, name="sign_in_link"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
]
