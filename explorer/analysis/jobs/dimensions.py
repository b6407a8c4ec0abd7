"""The names of the dimensions that distinguish messages. Without PySpark, so that pages use the same ones as jobs."""

SESSION, SIZE, TIME_TO_LIVE = "session", "size", "time-to-live"
PROPERTY = "property:"  # followed by the name of a property that an operator chose
