#!/usr/bin/env python
"""Vitrine's commands: `manage.py help` lists them."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line

        from explorer.site.unready import explained
    except ModuleNotFoundError as missing:
        sys.exit(f"The package {missing.name} is missing. Run `make up` once, or use .venv/bin/python manage.py.")
    try:
        with explained():
            execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        sys.exit(f"{problem}")
