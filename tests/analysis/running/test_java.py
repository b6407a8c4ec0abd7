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
def test_version_is_read_from_the_release_file(tmp_path, release, number):
    assert java.version(an_installation(tmp_path / "jdk", release)) == number


def test_a_folder_without_java_has_no_version(tmp_path):
    assert java.version(tmp_path) is None


@pytest.fixture
def no_system_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "FOLDERS", (str(tmp_path / "installed" / "*"),))


def test_a_java_home_of_another_version_is_passed_over(tmp_path, no_system_java):
    eight = an_installation(tmp_path / "eight", 'JAVA_VERSION="1.8.0"')
    installed = an_installation(tmp_path / "installed" / "jdk-21", 'JAVA_VERSION="21.0.1"')
    assert java.find(str(eight)) == installed


def test_without_java_the_message_names_what_was_found_and_what_to_do(tmp_path, no_system_java):
    with pytest.raises(java.JavaNotFound, match="found none.*JAVA_HOME"):
        java.find()
    eleven = an_installation(tmp_path / "installed" / "jdk-11", 'JAVA_VERSION="11.0.2"')
    with pytest.raises(java.JavaNotFound, match=f"{eleven} is 11"):
        java.find()
