"""The ready-made site. The Celery application is imported with it, since the shell and commands start tasks, too."""

from .celery import app as celery_app
