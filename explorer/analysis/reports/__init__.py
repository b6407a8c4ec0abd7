"""Presenters of the analyses' reports: an answer in a sentence, charts, tables and notes, made of the tables of a Spark job.

A module for each report has `ANALYSIS`, which describes it, and a pure function from the job's tables to a Report (report.py).
registry.py lists them; forms.py and files.py are shared by all.
"""
