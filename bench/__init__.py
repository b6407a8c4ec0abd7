"""Benchmarks, mostly as ratios within one run: `make bench`, or `make bench ARGS="core celery"` for some parts."""
