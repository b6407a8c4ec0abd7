"""An archive of the classes that Spark loads (class data sharing), which about halves the processor time of a driver's start.

The first driver without an archive has its JVM list the classes that it loads, which costs little. When it has executed a run
and is idle, another JVM of the lowest priority writes the archive from that list. It is valid for one Java and one class path,
which its name states; a JVM ignores one that does not fit. Nothing here fails a run.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

IDLE_SECONDS = 20.0  # the archive takes about a minute of processor time, so not while a person waits for the next run
NEEDED_BYTES = 500 * 2**20  # an archive has 190 MB
QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # else a JVM warns of each class that it leaves out
PR_SET_PDEATHSIG = 1


def options(archive: Path, class_list: Path) -> str:
    """Options of the driver's JVM: use the archive, or list the classes for it; neither, if making it failed before."""
    if archive.exists():
        return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto {QUIET}'
    return "" if _failed(archive).exists() else f'"-XX:DumpLoadedClassList={class_list}"'


def is_wanted(archive: Path, class_list: Path) -> bool:
    """Whether this driver's JVM lists its classes, no other driver has made the archive meanwhile, and the disk has room."""
    is_usable = class_list.exists() and not archive.exists() and not _failed(archive).exists()
    return is_usable and shutil.disk_usage(class_list.parent).free > NEEDED_BYTES


def make_in_background(archive: Path, class_list: Path, java: Path, class_path: str) -> threading.Thread:
    """Make the archive in a process that ends with this one."""
    maker = threading.Thread(target=make, args=(archive, class_list, java, class_path), name="class data", daemon=True)
    maker.start()
    return maker


def make(archive: Path, class_list: Path, java: Path, class_path: str) -> None:
    """Write the archive from the list of classes, whole or not at all, and remove older ones. A failure is noted beside it.

    class_list: its folder has room for the new archive, and is removed with the driver.
    """
    whole, new = class_list.with_suffix(".whole"), class_list.with_suffix(".jsa")
    with suppress(OSError):
        text = class_list.read_bytes()
        whole.write_bytes(text[: text.rfind(b"\n") + 1])  # the JVM may be writing the last line
        command = [
            "nice", "-n", "19", str(java), "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:dump",
            f"-XX:SharedClassListFile={whole}", f"-XX:SharedArchiveFile={new}", *QUIET.split(), "-cp", class_path,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, check=False, preexec_fn=_end_with_parent())
        archive.parent.mkdir(parents=True, exist_ok=True)
        if done.returncode == 0 and new.exists():
            for older in archive.parent.glob("classes-*"):
                older.unlink(missing_ok=True)
            new.replace(archive)
        elif done.returncode > 0 and shutil.disk_usage(class_list.parent).free > NEEDED_BYTES:  # neither a signal nor a full disk
            _failed(archive).write_bytes(done.stdout[-2_000:] + done.stderr[-2_000:])


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _end_with_parent():
    """What a child process calls first, so that it ends with this one (Linux)."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def end_with_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return end_with_parent
