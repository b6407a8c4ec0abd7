"""The broker's fixtures, and the examples as modules, found as when they are run."""

import sys
from pathlib import Path

from tests.fixtures import *  # noqa: F403

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
