"""Lets a plain script use the broker: finds this repository, and the database of the Vitrine that runs in it.

Another one is named as for the site: VITRINE_DATA=... or DATABASE_URL=... before the command. A program within a Django
project of its own needs nothing of this: "broker_core" is one of its apps.
"""

import os
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
django.setup()
