"""The archive of class data: written whole or not at all, by a program in the place of the JVM."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from explorer.analysis.jobs import class_data
from explorer.analysis.running import driver

WRITES = """for argument do case $argument in -XX:SharedArchiveFile=*) echo "$@" > "${argument#*=}" ;; esac; done"""


@pytest.fixture
def archive(tmp_path):
    """The archive's file; its folder has an older one."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "classes-older.jsa").touch()
    return tmp_path / "spark" / "classes-1.jsa"


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "driver").mkdir()
    file = tmp_path / "driver" / "classes.txt"
    file.write_text("java/lang/Object\njava/lang/String\norg/apa")
    return file


def a_java(folder: Path, script: str) -> Path:
    file = folder / "java"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def names(archive: Path) -> set[str]:
    return {file.name for file in archive.parent.iterdir()}


def test_the_first_driver_lists_its_classes_and_the_next_driver_uses_the_archive(archive, listed, tmp_path):
    assert "DumpLoadedClassList" in class_data.options(archive, listed) and class_data.is_wanted(archive, listed)
    class_data.make(archive, listed, a_java(tmp_path, WRITES), "/conf:/a.jar")
    assert names(archive) == {"classes-1.jsa"} and "-cp /conf:/a.jar" in archive.read_text()
    assert listed.with_suffix(".whole").read_text() == "java/lang/Object\njava/lang/String\n"
    assert f"SharedArchiveFile={archive}" in class_data.options(archive, listed) and not class_data.is_wanted(archive, listed)


def test_a_failed_archive_is_not_retried_by_each_driver(archive, listed, tmp_path):
    class_data.make(archive, listed, a_java(tmp_path, "echo unsupported >&2; exit 1"), "/a.jar")
    assert names(archive) == {"classes-older.jsa", "classes-1.failed"}
    assert class_data.options(archive, listed) == "" and not class_data.is_wanted(archive, listed)


def test_after_a_full_disk_no_file_remains_and_the_archive_is_retried(archive, listed, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10))
    assert not class_data.is_wanted(archive, listed)
    class_data.make(archive, listed, a_java(tmp_path, "exit 1"), "/a.jar")
    class_data.make(archive, listed.with_name("gone"), a_java(tmp_path, "exit 1"), "/a.jar")
    assert names(archive) == {"classes-older.jsa"}


@pytest.mark.parametrize("change", ["java", "jar"])
def test_the_archive_is_named_by_java_and_the_class_path(tmp_path, settings, monkeypatch, change):
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "a.jar").touch()
    distribution = type("Found", (), {"version": "4.3.0", "locate_file": lambda self, name: tmp_path / name})()
    monkeypatch.setattr(driver, "distribution", lambda name: distribution)
    java_home = tmp_path / "java-1"
    first = driver.class_archive(java_home, driver.session_of({}))
    assert first == driver.class_archive(java_home, driver.session_of({})) and "4.3.0" in first
    if change == "java":
        java_home = tmp_path / "java-2"
    else:
        (jars / "a.jar").write_bytes(b"newer")
    assert driver.class_archive(java_home, driver.session_of({})) != first
