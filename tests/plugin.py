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
# Those whose tests take 10 s and more, of either kind, the longest first: at the end, one would keep its worker busy while the
# others are idle.
LONG_FILES = (
    "soak/test_kills_of_jobs", "analysis/test_end_to_end", "soak/test_recomputation", "explorer/test_rabbitmq_browser",
    "site/test_tour", "site/test_kill", "explorer/test_lessons", "soak/test_soak", "crash/test_kill_postgres",
    "celery/test_stress", "explorer/test_admin_browser", "history/test_archive", "analysis/jobs/test_overview",
    "service_bus/test_odd_values", "celery/test_workers", "site/test_up", "explorer/test_live", "explorer/test_journeys",
    "analysis/jobs/test_properties", "explorer/test_accessibility", "explorer/test_admin", "explorer/test_entity_browser",
    "crash/test_two_dispatchers", "analysis/jobs/test_incidents", "crash/test_hanging_database", "explorer/test_live_vhost",
    "celery/test_channel", "explorer/test_states_browser", "explorer/test_every_page", "explorer/test_rabbitmq_pages",
    "analysis/jobs/test_verification", "explorer/test_search_browser", "crash/test_waiting_receivers",
    "queue_storage/test_model", "crash/test_two_processes", "explorer/test_message_templates", "site/test_configuration",
    "analysis/jobs/test_journeys", "explorer/test_dead_letters", "site/test_web_server", "analysis/running/test_execution",
    "service_bus/test_whole_messages", "analysis/test_browser", "explorer/test_navigation", "analysis/jobs/test_what_if",
    "explorer/test_demo", "service_bus/test_model", "explorer/test_pages", "explorer/test_clock",
    "service_bus/http/test_http_service_bus", "analysis/jobs/test_importing", "analysis/test_reports", "test_removal",
    "operations/test_kills", "crash/test_many_consumers", "reads/test_past", "explorer/test_split_view",
    "service_bus/test_locked_messages", "explorer/test_overview", "service_bus/test_network_model", "test_references",
    "crash/test_contended_senders", "analysis/jobs/test_lives", "rabbitmq/test_concurrent_dead_lettering",
    "analysis/test_generation", "site/test_clients_of_the_readme", "test_docs", "listener/test_processes", "listener/test_limits",
    "official_clients/test_administration", "official_clients/test_stories", "official_clients/test_celery",
    "official_clients/test_node",
    "fuzz/test_requests", "service_bus/administration/test_bad_input",
)  # fmt: skip

os.environ.setdefault("SPARK_NICE", "0")  # tests wait for their analyses
os.environ.setdefault("FAILED_AUTHENTICATION_DELAY_SECONDS", "0")  # tests that send wrong signatures are neither delayed
os.environ.setdefault("FAILED_AUTHENTICATIONS", "0")  # nor refused

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
