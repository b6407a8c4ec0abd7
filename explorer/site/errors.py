"""Error pages for failures that the pages do not handle: what is wrong and what to do, never a stack trace."""

import sys

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from broker_core.common.errors import BrokerUnavailable, ServerBusy, StorageFull
from explorer.frames.shell import as_notice

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, BrokerUnavailable, ServerBusy)
DISK_IS_FULL = "53100"  # PostgreSQL's code


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: an invalid URL or form."""
    if isinstance(exception, DisallowedHost):
        host = request.META.get("HTTP_HOST", "")
        return page(request, 400, "Unknown host name", f"Add {host.split(':')[0]} to ALLOWED_HOSTS and restart.")
    if isinstance(exception, RequestDataTooBig):
        return too_large(request, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    return page(request, 400, "Invalid request", "Go back, check your input, and try again.")


def too_large(request: HttpRequest, limit: int) -> HttpResponse:
    """413: the body is larger than `limit` bytes. It was not read to its end."""
    response = page(
        request,
        413,
        "Request too large",
        f"The limit is {limit // 2**20} MB. Nothing was changed. Sign in to upload larger messages and documents as files.",
    )
    response.headers["Connection"] = "close"
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: a form without a valid CSRF token."""
    return page(
        request,
        403,
        "Form expired",
        "Nothing was changed. Reload the page and submit the form again. Cookies must be allowed for this site.",
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403: the user lacks the permission."""
    return page(
        request, 403, "Permission denied", str(exception) or "Ask an administrator for access, or sign in with another account."
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404: there is no such page."""
    return page(request, 404, "Page not found", "The address may be mistyped, or the item may have been deleted.")


def server_error(request: HttpRequest) -> HttpResponse:
    """503 while the database is unavailable, else 500. Called in the `except` block, so `sys.exc_info` has the exception."""
    problem = sys.exc_info()[1]
    if isinstance(problem, StorageFull) or getattr(getattr(problem, "__cause__", None), "sqlstate", None) == DISK_IS_FULL:
        return page(request, 503, "Disk full", "Nothing was stored. Free some space on the database's disk, then try again.")
    if isinstance(problem, DATABASE_UNAVAILABLE):
        return page(
            request, 503, "Database unavailable",
            "No accepted message is lost. The database usually returns within seconds; then reload this page.",
        )  # fmt: skip
    return page(
        request,
        500,
        "Internal error",
        "The error was logged with the address and time. You can retry; if it happens again, report it.",
    )


def page(request: HttpRequest, status: int, heading: str, text: str) -> HttpResponse:
    """Render an error without the database; for htmx only the notice, which leaves the page as it is."""
    fragment = request.headers.get("HX-Request") == "true"
    name = "explorer/_refused.html" if fragment else "errors/page.html"
    response = render(request, name, {"heading": heading, "text": text, "status": status, "error": None}, status=status)
    if fragment:
        as_notice(response)
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response
