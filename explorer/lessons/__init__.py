"""Lessons and sandboxes: a lesson is a data file of steps that a person plays in a namespace of their own.

lesson.py reads and checks the files; catalog.py finds them; stage.py performs their actions and compares expectations with the
broker's events; run.py is one person's run of a lesson; sandboxes.py creates and removes the namespaces; pages.py shows them;
scenario.py records what was done in a sandbox, and runs it again; following.py lets others follow a lesson;
faults.py lets the receivers of a sandbox fail.
Each family has a module with its own actions, faults and lessons (FamilyPages.lessons).
"""
