"""People and roles: the list, adding a person, and a person's page with role, sign-in and deactivation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model, update_session_auth_hash
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import NoReverseMatch, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods

from broker_core.common.errors import NotAllowed
from broker_core.common.types import Right
from explorer.frames import changes
from explorer.frames.shell import Act, act, page, show
from explorer.people import users
from explorer.people.roles import ALLOWS, RIGHTS, role_name
from explorer.people.sign_in import link_for

from .people_forms import NewPersonForm, PasswordForm, RoleForm

_PLACE = {"section": "administration", "tab": "people"}


@page
@require_GET
def people(request: HttpRequest) -> HttpResponse:
    """All people; a person who is no administrator sees their own account."""
    everyone = get_user_model().objects.prefetch_related("groups").order_by("-is_active", "username")
    if Right.MANAGE not in request.actor.rights:
        everyone = everyone.filter(pk=request.user.pk)
    lines = [(user, role_name(user) if user.is_active else _role_when_active(user)) for user in everyone]
    return show(request, "administration/people", {**_PLACE, "lines": lines, "allows": ALLOWS.get(role_name(request.user), "")})


def _role_when_active(user: Any) -> str:
    groups = {group.name for group in user.groups.all()}
    return next((role for role in RIGHTS if role in groups), "no role")


@sensitive_post_parameters()
@never_cache
@page
@require_http_methods(["GET", "POST"])
def new_person(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.MANAGE, "people")
    form = NewPersonForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        context = {**_PLACE, "deeper": "New person", "form": form}
        return show(request, "administration/person_new", context, fragment="administration/person_new", status=_status(form))
    role = form.cleaned_data["role"]
    done = act(
        request, "create person", None, lambda: _create(form, role), target=form.cleaned_data["username"],
        says=lambda user: f"Added {user.get_username()} with the role {role}.",
    )  # fmt: skip
    if form.cleaned_data["set_usable_password"]:
        return HttpResponseRedirect(reverse("explorer:person", args=[done.result.get_username()]))
    return _show_person(request, done.result, link=_link(request, done.result))


@transaction.atomic
def _create(form: NewPersonForm, role: str) -> Any:
    user = form.save()
    users.assign(user, role)
    return user


@sensitive_post_parameters()
@never_cache
@page
@require_http_methods(["GET", "POST"])
def person(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows the person. POST `do` carries out one of _CHANGES; an Undo button names it in the address."""
    request.actor.require(Right.MANAGE, "people")
    user = get_object_or_404(get_user_model(), username=name)
    if request.method != "POST":
        return _show_person(request, user)
    return changes.make(request, _CHANGES, user)


def _change_role(request: HttpRequest, user: Any, data: Any) -> HttpResponse:
    form = RoleForm(data)
    if not form.is_valid():
        return _show_person(request, user, role_form=form)
    role, see_bodies = form.cleaned_data["role"], form.cleaned_data["see_bodies"]
    before = {"do": "role", "role": role_name(user)} | ({"see_bodies": "on"} if users.may_see_bodies(user) else {})
    done = act(
        request, "change person", None, lambda: users.assign(user, role, see_bodies=see_bodies), target=user.get_username(),
        says=lambda _: f"{user.get_username()} has the role {role}{' and may see message bodies' * see_bodies}.",
        undo=changes.undo_with(request, before if before["role"] in RIGHTS else {}),
    )  # fmt: skip
    return _after(request, user, done)


def _set_active(active: bool) -> Callable[[HttpRequest, Any, Any], HttpResponse]:
    verb, other = ("activate", "deactivate") if active else ("deactivate", "activate")

    def change(request: HttpRequest, user: Any, data: Any) -> HttpResponse:
        def call() -> None:
            if user == request.user:
                raise NotAllowed("You cannot deactivate your own account. Ask another administrator.")
            users.set_active(user, active)

        done = act(
            request, f"{verb} person", None, call, target=user.get_username(),
            says=lambda _: f"{verb.capitalize()}d {user.get_username()}.", undo=changes.undo_with(request, {"do": other}),
        )  # fmt: skip
        return _after(request, user, done)

    return change


def _set_password(request: HttpRequest, user: Any, data: Any) -> HttpResponse:
    form = PasswordForm(user, data)
    if not form.is_valid():
        return _show_person(request, user, password_form=form)
    act(
        request, "set password", None, form.save, target=user.get_username(),
        says=lambda _: f"Set the password of {user.get_username()}. Their other sessions were ended.",
    )  # fmt: skip
    if user == request.user:
        update_session_auth_hash(request, user)
    return HttpResponseRedirect(request.path)


def _make_link(request: HttpRequest, user: Any, data: Any) -> HttpResponse:
    """Show a sign-in link once; it is neither stored nor audited, only that it was made."""
    if not user.is_active:
        raise NotAllowed(f"{user.get_username()} is deactivated and cannot sign in. Activate the account first.")
    act(request, "create sign-in link", None, lambda: None, target=user.get_username())
    return _show_person(request, user, link=_link(request, user))


_CHANGES = {
    "role": _change_role,
    "activate": _set_active(True),
    "deactivate": _set_active(False),
    "password": _set_password,
    "link": _make_link,
}


def _after(request: HttpRequest, user: Any, done: Act) -> HttpResponse:
    if done.error:
        user.refresh_from_db()
        return _show_person(request, user, error=done.error)
    return HttpResponseRedirect(reverse("explorer:people") if user == request.user else request.path)


def _show_person(request: HttpRequest, user: Any, **context: Any) -> HttpResponse:
    role = _role_when_active(user) if not user.is_superuser else role_name(user)
    bound = [form for form in (context.get("role_form"), context.get("password_form")) if form is not None]
    context = {
        **_PLACE, "deeper": user.get_username(), "person": user, "role": role, "is_self": user == request.user,
        "role_form": RoleForm(initial={"role": role, "see_bodies": users.may_see_bodies(user)}),
        "password_form": PasswordForm(user), "has_links": _link(request, user) is not None,
    } | context  # fmt: skip
    status = 409 if context.get("error") else max([200, *(_status(form) for form in bound)])
    return show(request, "administration/person", context, fragment="administration/person", status=status)


def _link(request: HttpRequest, user: Any) -> str | None:
    """A one-time link that signs the user in; None: the host site has no such links."""
    try:
        return request.build_absolute_uri(link_for(user))
    except NoReverseMatch:
        return None


def _status(form: Any) -> int:
    return 400 if form.is_bound and form.errors else 200
