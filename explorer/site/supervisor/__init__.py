"""`manage.py up`: runs all parts of Vitrine under one process.

folder.py   one supervisor per data folder; ends the processes of a killed one
port.py     the web server's listening socket, bound first and passed only to it; those of the listener: broker_core/listener
child.py    a child process: its output, its end, its restarts
up.py       starts, watches and stops all parts in order
"""
