"""Spark jobs. Each runs in a child process that uses PySpark and files, but neither Django nor the database."""
