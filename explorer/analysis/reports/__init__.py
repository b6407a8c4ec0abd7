"""Reports: analyses that are answered at once, from roll-ups and the archive's files, without Spark.

A module for each analysis has a pure function from the rows it reads to a Report (report.py), and an Analysis that describes it.
registry.py lists them; forms.py, pages.py, files.py and one template are shared by all.
"""
