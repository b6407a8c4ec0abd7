"""Spark jobs: each runs in a child process that knows PySpark and files, no Django and no database."""
