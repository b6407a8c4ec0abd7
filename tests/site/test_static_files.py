"""Static files as `collectstatic` leaves them: ours without comments, those of others unchanged."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command

from explorer.site.compression import CollectedFiles

OURS = sorted(path.name for path in Path("static/explorer").glob("*.*") if path.suffix in (".css", ".js"))
COMMENT = re.compile(r"^\s*//|/\*", re.MULTILINE)


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """The folder with all collected files."""
    folder = tmp_path_factory.mktemp("static")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.contrib.staticfiles.storage.staticfiles_storage._wrapped", CollectedFiles(location=folder))
        call_command("collectstatic", verbosity=0, interactive=False)
    return folder / "explorer"


@pytest.mark.parametrize("name", OURS)
def test_our_static_files_are_minified(collected, name):
    source, minified = Path(finders.find(f"explorer/{name}")).read_text(), (collected / name).read_text()
    assert len(minified) < len(source) * 0.9 and not COMMENT.search(minified)
    strings = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
    code = re.sub(r"^\s*//.*$", "", source, flags=re.MULTILINE)
    assert [string for string in strings.findall(minified) if string not in code] == []


def test_third_party_files_are_not_changed(collected):
    for name in ("vendor/htmx/htmx.min.js", "vendor/htmx/hx-ws.min.js"):
        assert (collected / name).read_bytes() == Path(finders.find(f"explorer/{name}")).read_bytes()


def test_the_file_with_a_hash_in_its_name_has_the_same_content(collected):
    """What is minified already is not changed again."""
    (hashed,) = collected.glob("app.*.css")
    assert hashed.read_bytes() == (collected / "app.css").read_bytes() != b""
