"""Who may open the data folder: its owner, and for root the user that runs the embedded server."""

import os
import stat

import pytest

from explorer.site.configuration import secret_key
from explorer.site.data_folder import make_private
from explorer.site.embedded_postgres import server
from explorer.site.supervisor.folder import Folder


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def data(tmp_path):
    """A data folder as earlier versions left it."""
    data = tmp_path / "data"
    (data / "archive").mkdir(parents=True)
    (data / "children.json").write_text("[]")
    for path, open_mode in ((data, 0o755), (data / "archive", 0o755), (data / "children.json", 0o644)):
        path.chmod(open_mode)
    return data


def test_an_existing_folder_is_made_private(data):
    folder = Folder(data, "http://localhost/")
    folder.remember([])
    assert (mode(data), mode(data / "archive"), mode(data / "children.json")) == (0o700, 0o700, 0o600)
    assert mode(data / "up.lock") == 0o600
    folder.release()


def test_a_new_folder_is_private(tmp_path):
    secret_key(tmp_path / "new")
    make_private(tmp_path / "other")
    assert mode(tmp_path / "new") == mode(tmp_path / "other") == 0o700


def test_the_target_of_a_link_is_not_changed(data, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    elsewhere.chmod(0o755)
    (data / "runs").symlink_to(elsewhere)
    make_private(data)
    assert mode(elsewhere) == 0o755


def test_the_user_of_the_server_may_traverse_the_folder_of_root(data, monkeypatch):
    monkeypatch.setattr(server, "system_group", lambda: os.stat(data).st_gid)
    data.chmod(0o711)
    make_private(data)
    assert mode(data) == 0o710


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_root_grants_access_only_to_the_user_of_the_server(data):
    (data / "postgres").mkdir()
    make_private(data)
    server._let_in(data / "postgres")
    assert mode(data) == 0o710 and data.stat().st_gid == server.system_group()
