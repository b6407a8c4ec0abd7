"""The only code that runs SQL: named statements, the connections that run them, and the conversion of rows to values."""

from . import process as process  # gives actors and refusals the process's name and ids
