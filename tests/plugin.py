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
    "explorer/test_lessons", "explorer/test_live", "explorer/test_admin", "site/test_up", "explorer/test_accessibility",
    "analysis/jobs/test_overview", "explorer/test_journeys", "crash/test_many_consumers", "analysis/jobs/test_properties",
    "analysis/jobs/test_fan_out", "celery/test_workers", "service_bus/test_odd_values", "explorer/test_live_vhost",
    "explorer/test_every_page", "analysis/jobs/test_incidents", "explorer/test_entity_browser", "crash/test_two_dispatchers",
    "crash/test_two_processes", "crash/test_waiting_receivers", "explorer/test_rabbitmq_browser",
    "explorer/test_rabbitmq_pages", "explorer/test_clock", "analysis/jobs/test_journeys", "analysis/test_reports",
    "site/test_web_server", "site/test_configuration", "explorer/test_demo", "explorer/test_navigation",
    "explorer/test_states_browser", "operations/test_kills", "explorer/test_pages", "explorer/test_dead_letters",
    "explorer/test_message_templates", "analysis/jobs/test_verification", "analysis/jobs/test_lives",
    "analysis/running/test_execution", "analysis/test_browser", "crash/test_contended_senders", "site/test_tour",
    "site/test_kill", "soak/test_soak", "analysis/test_end_to_end", "crash/test_kill_postgres", "celery/test_stress",
    "explorer/test_admin_browser", "history/test_archive", "queue_storage/test_model", "service_bus/test_network_model",
    "rabbitmq/test_model", "service_bus/test_session_model", "rabbitmq/test_preview",
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
