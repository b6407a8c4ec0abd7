"""Set up Django, so that a plain script can use the broker of the Vitrine that runs in this repository.

To use another database, set VITRINE_DATA or DATABASE_URL, as for the site. A program in its own Django project does not need
this module: it adds "broker_core" to its INSTALLED_APPS.
"""

import os
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
django.setup()
