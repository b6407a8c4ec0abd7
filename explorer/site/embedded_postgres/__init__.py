"""A database engine that brings its own server: PostgreSQL from a wheel, in the data folder.

`base` is what Django loads as ENGINE; `server` starts, finds and stops the server.
"""
