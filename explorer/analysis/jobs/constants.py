"""What jobs of reports and their presenters agree on. Without PySpark, so that pages can read it."""

from datetime import timedelta

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)

# Service level.
BY_WEEK = timedelta(days=92)  # a range up to this long is by week, a longer one by month

# Recurring backlog.
WEEK_HOURS = 7 * 24
MOST_WEEKS = 8  # before the end of the range
FEWEST_WEEKS = 3  # of history, and in which a backlog must have been large
LARGE = 10  # messages of a large backlog
LARGE_TIMES = 3  # the usual one, from which it is large

# Overview. The metrics are counts, or mean bins of durations.
ARRIVALS, LOSSES, WAITING, PROCESSING, FAILURES, LOCKS = range(6)
COUNTS = (ARRIVALS, LOSSES, FAILURES, LOCKS)
LOOK_BACK = timedelta(days=28)
EARLY = 3 * DAY  # of the history of a queue, in which hours are compared with those right before them
FEWEST_ALIKE = 3  # hours of the same weekday, or else of any day, that say what is usual
FEWEST_HOURS = 6  # of those before, in an early history
LEAST_SCORE = 4.0  # times the usual spread
