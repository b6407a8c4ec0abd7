"""A module for each report, named like its slug: `tables(history)` returns its data frames by name (explorer.analysis.reports has
their presenters). A table has at most some thousands of rows; durations are in microseconds, instants in UTC."""
