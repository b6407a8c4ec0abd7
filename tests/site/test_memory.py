"""The embedded server's buffers by the memory there is."""

from types import SimpleNamespace

import pytest

from broker_core import reads
from explorer.frames.presenters import filesize
from explorer.site.embedded_postgres import memory
from tests.html import body_of

GB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with this memory, and this process in a control group of it."""

    def of(total: int, cgroup: str = "", limits: dict[str, str] | None = None):
        monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(total=total))
        files = {"proc/self/cgroup": cgroup} | (limits or {})
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return of


@pytest.mark.parametrize(("total", "expected"), [(GB, "256MB"), (3 * GB + 5, "768MB"), (4 * GB, "1024MB"), (64 * GB, "1024MB")])
def test_the_buffers_are_a_quarter_of_the_memory_and_at_most_1_gb(machine, total, expected):
    assert memory.shared_buffers(machine(total)) == expected


@pytest.mark.parametrize(
    ("cgroup", "limits"),
    [
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{GB}\n"}),  # version 2, as a container sees it
        ("0::/a.slice/b\n", {"sys/fs/cgroup/a.slice/memory.max": f"{GB}", "sys/fs/cgroup/a.slice/b/memory.max": "max"}),
        ("5:cpu:/x\n4:cpuset,memory:/x\n0::/\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{GB}"}),  # version 1
        ("4:memory:/host/path\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GB}"}),  # the path is the host's
    ],
)
def test_the_limit_of_a_control_group_counts_as_the_memory(machine, cgroup, limits):
    assert memory.shared_buffers(machine(16 * GB, cgroup, limits)) == "256MB"


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), ""])
def test_a_control_group_without_a_limit_is_ignored(machine, limit):
    root = machine(2 * GB, "0::/\n4:memory:/\n", {"sys/fs/cgroup/memory.max": limit})
    assert memory.shared_buffers(root) == "512MB"


def test_a_system_without_control_groups_uses_the_physical_memory(machine, tmp_path):
    machine(2 * GB)
    assert memory.usable(tmp_path / "elsewhere") == 2 * GB


@pytest.mark.django_db(transaction=True)
def test_the_server_uses_the_computed_buffers_and_the_storage_page_shows_them(admin_client):
    megabytes = int(memory.shared_buffers().removesuffix("MB"))
    assert reads.health().buffer_bytes == megabytes * memory.MB
    shown = body_of(admin_client.get("/administration/storage/"))
    assert f"<dt>Shared buffers</dt><dd>{filesize(reads.health().buffer_bytes)}</dd>" in shown
