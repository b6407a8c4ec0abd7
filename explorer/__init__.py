"""The explorer: what a person sees of the broker, and the ready-made site around it."""

__version__ = "0.1.0"  # as in pyproject.toml
