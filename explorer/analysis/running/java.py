"""Finds the Java for Spark. Only analyses need it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

VERSIONS = (17, 21)
FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home", "/opt/java/*", "~/.sdkman/candidates/java/*")
HOW_TO = (
    "Install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME to its folder."
)


class JavaNotFound(Exception):
    """No usable Java was found. The text says what was found and what to do."""


def find(java_home: str | None = None) -> Path:
    """The home folder of a Java 17 or 21: `java_home`, the environment's, that of `java` on the path, or an installed one.

    Raises JavaNotFound. A JAVA_HOME of another version is ignored.
    """
    found: dict[Path, int | None] = {}
    for home in _candidates(java_home):
        if home not in found:
            found[home] = version(home)
        if found[home] in VERSIONS:
            return home
    others = ", ".join(f"{home} is {number or 'unreadable'}" for home, number in found.items())
    raise JavaNotFound(f"An analysis needs Java {VERSIONS[0]} or {VERSIONS[1]}; found {others or 'none'}. {HOW_TO}")


def problem() -> str:
    """Why no analysis can run on this machine; empty: one can."""
    try:
        find()
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


def _candidates(java_home: str | None):
    for home in (java_home, os.environ.get("JAVA_HOME")):
        if home:
            yield Path(home)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in FOLDERS:
        expanded = Path(pattern).expanduser()
        anchor = Path(expanded.anchor)
        yield from sorted(home for home in anchor.glob(str(expanded.relative_to(anchor))) if (home / "bin" / "java").exists())


def _major(text: str) -> int | None:
    """From `JAVA_VERSION="17.0.15"` or `openjdk version "21.0.2"`; "1.8.0" is 8."""
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
