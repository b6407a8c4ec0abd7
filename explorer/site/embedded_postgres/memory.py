"""How much memory the embedded server's buffers get: a quarter of what this process may use, at most 1 GB."""

from pathlib import Path

import psutil

MB = 2**20
MOST_BUFFERS = 1024 * MB
_ROOT = Path("/")


def shared_buffers(root: Path = _ROOT) -> str:
    """The server's setting, in whole megabytes. PostgreSQL takes the memory as it fills them."""
    return f"{max(min(usable(root) // 4, MOST_BUFFERS) // MB, 1)}MB"


def usable(root: Path = _ROOT) -> int:
    """Bytes of memory that this process may use: the machine's, or less if a control group limits it, as a container's does."""
    return min([psutil.virtual_memory().total, *_limits(root)])


def _limits(root: Path) -> list[int]:
    """The limits of this process's control group and of those above it. A group that is not visible from here is passed over."""
    files = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2
            files += _upwards(root / "sys/fs/cgroup", group, "memory.max")
        elif "memory" in controllers.split(","):  # version 1
            files += _upwards(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
    return [int(text) for file in files if (text := _text(file).strip()).isdecimal()]


def _upwards(top: Path, group: str, name: str) -> list[Path]:
    group_folder = top / group.strip("/")
    return [folder / name for folder in (group_folder, *group_folder.parents) if folder.is_relative_to(top)]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
