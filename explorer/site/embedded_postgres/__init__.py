"""A database engine with an embedded server: PostgreSQL from a wheel, in the data folder.

`base` is Django's ENGINE; `server` starts, finds and stops the server.
"""
