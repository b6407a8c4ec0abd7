"""The data folder is closed to other users of the machine: the archive has properties of messages, and there are keys in it."""

import os
import stat
from pathlib import Path

from .embedded_postgres import server


def make_private(folder: Path) -> None:
    """Create the folder, or close it and what is directly in it: 700, files 600. Raises OSError.

    For root, the user that runs the embedded server may pass through it, by its group: 710. What belongs to others, such as that
    server's data, and where links lead, is not changed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *folder.iterdir()):
        status = path.lstat()
        if status.st_uid != os.geteuid() or stat.S_ISLNK(status.st_mode):
            continue
        allowed = stat.S_IRWXU
        if path == folder and status.st_gid == server.system_group():
            allowed |= stat.S_IXGRP
        if stat.S_IMODE(status.st_mode) & ~allowed:
            path.chmod(stat.S_IMODE(status.st_mode) & allowed)
