"""A job for tests: says that it began, then sleeps with a child of its own. `stubborn` ignores SIGTERM."""

import json
import os
import signal
import subprocess
import sys
import time

from explorer.analysis.jobs import runner

if __name__ == "__main__":
    runner._die_with(os.getppid())
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "60"])
    print(json.dumps({"event": "step", "step": 1, "steps": 2, "text": f"{os.getpid()} {child.pid}"}), flush=True)
    print("a line of log", file=sys.stderr, flush=True)
    time.sleep(60)
