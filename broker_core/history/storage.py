"""The storage of the archive's files: a folder by default, or any URL that pyarrow can write to (hdfs://, s3://).

Files appear atomically. In a folder, a file is written under a temporary name, flushed, renamed, and the folder is flushed.
Elsewhere, the store commits it at the end of the upload.
"""

import hashlib
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from django.conf import settings

from broker_core.store.connections import DEFAULT, current_database

# Text with few values. A dictionary of numbers or ids doubles the time to write them, and the size.
FEW_VALUES = ["actor", "details", "link", "reason", "session_id"]
PARQUET = {"compression": "zstd", "use_dictionary": FEW_VALUES}
GROUP_ROWS = 50_000  # rows of a row group. Files are sorted by entity, and a reader of one entity skips the groups of others


def current_archive() -> "Folder | Remote":
    """The archive of the current database. Each has its own, since each counts its slices and namespaces from one."""
    database = current_database()
    at = settings.ARCHIVE_URL if database.alias == DEFAULT.alias else f"{settings.ARCHIVE_URL}/databases/{database.alias}"
    return open_archive(at)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that was written. checksum: SHA-256, in hexadecimal."""

    bytes: int
    checksum: str


def open_archive(url: str) -> "Folder | Remote":
    """The archive at `url`: a path, file://, or a scheme that pyarrow supports (s3a:// is treated as s3://)."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Folder(Path(parts.path))
    return Remote(url)


class Folder:
    """An archive in a folder of this machine or of a mounted disk."""

    def __init__(self, root: Path):
        self.root = root.absolute()

    def write(self, table: pa.Table, path: str) -> Stored:
        """Write a table durably as a Parquet file at `path`, replacing any existing file."""
        return self.store(_parquet(table), path)

    def store(self, content: pa.Buffer, path: str) -> Stored:
        """As `write`, for the content of a file."""
        target = self.root / path
        self._make_folder(target.parent)
        for leftover in target.parent.glob(f"{target.name}.*.tmp"):
            leftover.unlink(missing_ok=True)
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
        _flush_folder(target.parent)
        return _stored(content)

    def copy(self, file: Path, path: str) -> None:
        """Copy a file of this machine to `path`."""
        self._make_folder((self.root / path).parent)
        shutil.copyfile(file, self.root / path)

    def open(self, path: str) -> pa.NativeFile:
        """The file for reading. Raises FileNotFoundError, OSError."""
        return pa.OSFile(str(self.root / path))

    def delete(self, path: str) -> None:
        """Delete a file, or a folder whose path ends with a slash."""
        if path.endswith("/"):
            shutil.rmtree(self.root / path, ignore_errors=True)
        else:
            (self.root / path).unlink(missing_ok=True)

    def below(self, folder: str) -> list[str]:
        """The paths of the files below a folder, in order."""
        paths = (self.root / folder).rglob("*")
        return sorted(
            str(path.relative_to(self.root)) for path in paths if path.is_file() and not path.name.startswith((".", "_"))
        )

    def address(self, path: str) -> str:
        """The address at which Spark and pyarrow open the file."""
        return str(self.root / path)

    def _make_folder(self, folder: Path) -> None:
        if folder.exists():
            return
        if folder != self.root:
            self._make_folder(folder.parent)
        folder.mkdir(parents=True, exist_ok=True)
        _flush_folder(folder.parent)


class Remote:
    """An archive in an object store, which shows an object once its upload is complete, or in hdfs, which renames."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._files, self._root = pafs.FileSystem.from_uri(self.url.replace("s3a://", "s3://", 1))

    def write(self, table: pa.Table, path: str) -> Stored:
        return self.store(_parquet(table), path)

    def store(self, content: pa.Buffer, path: str) -> Stored:
        target = f"{self._root}/{path}"
        self._files.create_dir(target.rpartition("/")[0], recursive=True)
        if self._files.type_name == "hdfs":
            self._write(content, f"{target}.tmp")
            self._files.move(f"{target}.tmp", target)
        else:
            self._write(content, target)
        return _stored(content)

    def copy(self, file: Path, path: str) -> None:
        """As Folder.copy."""
        target = f"{self._root}/{path}"
        self._files.create_dir(target.rpartition("/")[0], recursive=True)
        pafs.copy_files(str(file), target, pafs.LocalFileSystem(), self._files)

    def open(self, path: str) -> pa.NativeFile:
        """The file for reading. Raises FileNotFoundError, OSError."""
        return self._files.open_input_file(f"{self._root}/{path}")

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if path.endswith("/"):
                self._files.delete_dir(f"{self._root}/{path}")
            else:
                self._files.delete_file(f"{self._root}/{path}")

    def below(self, folder: str) -> list[str]:
        """As Folder.below."""
        infos = self._files.get_file_info(pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True, recursive=True))
        names = (info.path.removeprefix(f"{self._root}/") for info in infos if info.type == pafs.FileType.File)
        return sorted(name for name in names if not name.rpartition("/")[2].startswith((".", "_")))

    def _write(self, content: pa.Buffer, target: str) -> None:
        with self._files.open_output_stream(target, compression=None) as stream:
            stream.write(content)

    def address(self, path: str) -> str:
        return f"{self.url}/{path}"


def checksum(content: pa.Buffer | bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _parquet(table: pa.Table) -> pa.Buffer:
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream, row_group_size=GROUP_ROWS, **PARQUET)
    return stream.getvalue()


def _stored(content: pa.Buffer) -> Stored:
    return Stored(content.size, checksum(content))


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
