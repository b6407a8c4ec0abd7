"""The only code that speaks SQL: named statements, the connections that run them, and rows turned into values."""

from . import process as process  # whoever uses the store is a process with a name
