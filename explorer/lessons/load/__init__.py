"""A load on a queue of a sandbox: senders and receivers that a person sets, changes while they run, and stops.

settings.py has the settings and their limits; programs.py the senders and receivers; running.py starts, changes, runs and stops a
load. It runs in slices of a Celery task, so a restart of the web server does not end it.
"""

from .programs import Client, Words
from .running import DEAD, Progress, change, client_of, count, of, play, progress, start, stop
from .settings import DURATION, LIMITS, MOST_MESSAGES, MOST_WAITING, LoadSettings
