"""The explorer: the broker's web pages, and a ready-made site that serves them."""

__version__ = "0.1.0"  # as in pyproject.toml
