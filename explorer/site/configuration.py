"""Converts environment variables to typed values. Pure, except for the secret key, which is stored in the data folder."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def flag(text: str | None, *, default: bool) -> bool:
    """False for "0", "no", "false" and "off", the default for an empty text, else True."""
    if not text:
        return default
    return text.strip().lower() not in ("0", "no", "false", "off")


def whole_number(name: str, text: str | None, *, default: int) -> int:
    """The value of the variable `name` as a number. Raises ImproperlyConfigured."""
    try:
        return int(text or default)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number, not {text!r}.") from None


def one_of(name: str, text: str | None, choices: Sequence[str]) -> str:
    """The value of the variable `name`, one of these words in any case; without a value the first.

    Raises ImproperlyConfigured.
    """
    word = (text or "").strip().lower() or choices[0]
    if word not in choices:
        raise ImproperlyConfigured(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {text!r}.")
    return word


def database_from_url(url: str, options: dict) -> dict:
    """Django's database settings of `postgresql://user:password@host:port/name?sslmode=require`.

    A `host` in the query is the folder of a Unix socket; the other parameters are passed to the driver.
    Raises ImproperlyConfigured for another kind of database or a missing name.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("postgres", "postgresql") or not name:
        raise ImproperlyConfigured(
            "DATABASE_URL must look like postgresql://user:password@host:5432/name (PostgreSQL 16 or later); "
            f"this one begins with {parts.scheme or 'nothing'}:// and names {'no' if not name else 'the'} database {name}."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": {**options, **query},
        "CONN_HEALTH_CHECKS": True,
    }


def trusted_origins(hosts: list[str], public_url: str) -> list[str]:
    """Trusted origins of forms besides the request's own: behind a proxy that ends TLS, `https` looks like `http`."""
    origins = {f"https://{'*' if host.startswith('.') else ''}{host}" for host in hosts if host != "*"}
    parts = urlsplit(public_url)
    return sorted(origins | ({f"{parts.scheme}://{parts.netloc}"} if parts.netloc else set()))


def secret_key(data: Path) -> str:
    """The key stored in the data folder, created at first use and readable only by its owner.

    Raises ImproperlyConfigured if it can be neither read nor written.
    """
    path = data / "secret_key"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _read_key(path)
        with os.fdopen(descriptor, "w") as file:
            file.write(key := secrets.token_urlsafe(48))
        return key
    except OSError as problem:
        raise ImproperlyConfigured(
            f"The data folder {data} cannot be used: {problem.strerror}. Free disk space or correct its permissions, "
            "choose another with VITRINE_DATA, or set SECRET_KEY."
        ) from problem


def _read_key(path: Path) -> str:
    key = path.read_text().strip()
    if not key:
        path.unlink()  # left empty by a full disk, or by a kill before it was written
        return secret_key(path.parent)
    return key


def cores_for_spark() -> int:
    """How many cores of this machine an analysis uses: a quarter, at least one, is left to the broker if there are several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - max(1, cores // 4))


def spark_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings from the variables SPARK_CONF_*: SPARK_CONF_driver_memory=4g is spark.driver.memory."""
    prefix = "SPARK_CONF_"
    named = {name.removeprefix(prefix): value for name, value in environment.items() if name.startswith(prefix) and value}
    return {f"spark.{name.removeprefix('spark_').replace('_', '.')}": value for name, value in named.items()}
