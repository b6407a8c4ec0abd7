"""Checks the archive's files against the manifest: existence, size, schema version, columns, rows, and the checksum."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from broker_core.models import ArchiveFile

from . import schema, storage
from .contents import CONTENTS


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as the manifest says. problem: the end of a sentence that begins with the file."""

    file: ArchiveFile
    problem: str

    def __str__(self) -> str:
        of_slice = f", slice {self.file.slice_id}" if self.file.slice_id else ""
        return f"{self.file.path} (day {self.file.day}{of_slice}) {self.problem}."


def finished_files() -> Iterable[ArchiveFile]:
    """The files of the manifest, oldest slice first, then those that are not of one slice."""
    return ArchiveFile.objects.order_by("slice_id", "path").iterator()


def damages(files: Iterable[ArchiveFile], *, deep: bool = False) -> Iterator[Damage]:
    """The damaged ones of these files. deep: also read each file whole and compare its checksum; otherwise only its footer."""
    archive = storage.current_archive()
    for file in files:
        problem = _problem(archive, file, deep)
        if problem:
            yield Damage(file, problem)


def _problem(archive: "storage.Folder | storage.Remote", file: ArchiveFile, deep: bool) -> str | None:
    try:
        with archive.open(file.path) as opened:
            if (size := opened.size()) != file.bytes:
                return f"has {size:,} bytes instead of {file.bytes:,}"
            return _problem_within(opened, file, deep)
    except FileNotFoundError:
        return "is missing"
    except (OSError, pa.ArrowException) as problem:
        return f"cannot be read: {str(problem).splitlines()[0] if str(problem) else type(problem).__name__}"


def _problem_within(opened: pa.NativeFile, file: ArchiveFile, deep: bool) -> str | None:
    footer = pq.read_metadata(opened)
    problem = schema.problem_of(footer.schema.to_arrow_schema(), CONTENTS[file.content].columns)
    if problem is None and footer.num_rows != file.rows:
        problem = f"has {footer.num_rows:,} rows instead of {file.rows:,}"
    if problem is None and deep and file.checksum:
        opened.seek(0)
        if storage.checksum(opened.read_buffer()) != file.checksum:
            problem = "has another checksum than when it was written"
    return problem
