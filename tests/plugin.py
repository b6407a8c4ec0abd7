"""A pytest plugin, loaded before Django's settings are.

Each worker has a data folder, and so a PostgreSQL, of its own; long files come first; analyses have no lower priority; Hypothesis
does not complain about a busy machine. Without a browser, the run says so, at its start and with the number of tests at its end.
"""

import os
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from tests import browser

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
# Those that take 15 s and more, the longest first: at the end, one would keep its worker busy while the others are idle.
LONG_FILES = (
    "explorer/test_accessibility", "explorer/test_live", "site/test_tour", "explorer/test_rabbitmq_browser", "soak/test_soak",
    "celery/test_workers", "analysis/test_whole", "explorer/test_every_page", "service_bus/test_odd_values", "site/test_kill",
    "crash/test_contended_senders", "crash/test_kill_postgres", "explorer/test_demo", "explorer/test_lessons",
    "celery/test_storm", "history/test_archive",
    "explorer/test_journeys", "explorer/test_states_browser", "crash/test_many_consumers",
    "explorer/test_admin_browser", "explorer/test_admin", "queue_storage/test_model", "crash/test_two_dispatchers",
    "service_bus/test_network_model", "rabbitmq/test_model", "service_bus/test_session_model", "rabbitmq/test_preview",
    "explorer/test_rabbitmq_manual_consumer", "explorer/test_message_templates", "explorer/test_clock",
)  # fmt: skip

os.environ.setdefault("SPARK_NICE", "0")  # tests wait for their analyses

if WORKER:
    folder = Path(os.environ.get("VITRINE_DATA") or Path(__file__).resolve().parent.parent / ".vitrine" / "test")
    if folder.name != WORKER:
        os.environ["VITRINE_DATA"] = str(folder / WORKER)

hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # CI judges a change by the same examples each time; `make test` tries others
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")


def pytest_collection_modifyitems(items) -> None:
    """The order of the files, which a distribution by file keeps with --no-loadscope-reorder."""
    places = {f"tests/{file}.py": place for place, file in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")  # a worker has none
    if terminal and browser.find() is None:
        terminal.write_line(f"{browser.MISSING}: the browser tests are skipped. make test installs one if it can.", yellow=True)


def pytest_terminal_summary(terminalreporter) -> None:
    skipped = sum(browser.MISSING in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if skipped:
        terminalreporter.write_line(f"{browser.MISSING}: {skipped} browser tests were skipped.", yellow=True)
