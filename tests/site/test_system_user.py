"""The system user that runs the embedded server for root: created by one of several processes that start at once."""

import pwd
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from explorer.site.embedded_postgres import server


def test_a_missing_system_user_is_created_once(monkeypatch):
    users: dict[str, SimpleNamespace] = {}
    calls = []

    def find(name):
        time.sleep(0.01)  # so that the others look before it is there
        return users[name]

    def create(command, **_):
        calls.append(command[0])
        time.sleep(0.05)
        users[command[-1]] = SimpleNamespace(pw_uid=1000 + len(calls))

    monkeypatch.setattr(pwd, "getpwnam", find)
    monkeypatch.setattr(subprocess, "run", create)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: server._system_user(), range(4)))
    assert calls == ["useradd"] and {user.pw_uid for user in found} == {1001}
