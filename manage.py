#!/usr/bin/env python
"""Vitrine's commands: `manage.py help` lists them."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line

        from explorer.site.unready import explained, refuse_to_set_up
    except ModuleNotFoundError as missing:
        sys.exit(f"The package {missing.name} is missing. Run `make up` once, or use .venv/bin/python manage.py.")
    try:
        with explained():
            if "up" not in sys.argv[1:2]:
                refuse_to_set_up()
            execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        sys.exit(f"{problem}")
