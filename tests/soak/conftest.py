"""The broker's fixtures, and an empty history for what proves the analyses."""

import pytest

from tests.fixtures import *  # noqa: F403
from tests.history.conftest import postgres  # noqa: F401 - a fixture

from .own_database import use_folder


@pytest.fixture
def empty_history(postgres, settings, tmp_path):  # noqa: F811
    """No event, no message and no archived file; the archive and the runs have a folder of their own."""
    from explorer.analysis.running import driver

    postgres.execute("TRUNCATE vitrine_message, vitrine_entity_counter")
    postgres.commit()
    for name in ("ARCHIVE_URL", "RUNS_FOLDER", "SPARK_MASTER", "SPARK_NICE"):
        setattr(settings, name, None)  # restored after the test
    use_folder(tmp_path)
    yield tmp_path
    driver.end_kept()
