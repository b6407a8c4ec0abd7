"""`manage.py up`: all of Vitrine under one process.

folder.py   one supervisor a data folder; what an earlier one left behind
port.py     the listening socket, bound first and handed to the web server alone
child.py    one child process: its output, its end, when to start it again
up.py       the order of starting, watching and stopping
"""
