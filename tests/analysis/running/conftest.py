"""The Spark session of the tests of jobs, for those of failures."""

from tests.analysis.jobs.conftest import spark  # noqa: F401
