"""The ready-made site. With its settings comes its Celery application: the shell and commands start tasks, too."""

from .celery import app as celery_app
