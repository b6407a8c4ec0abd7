"""A driver for tests, whose jobs need no Spark: they count themselves, or fail."""

import os
import sys

from explorer.analysis.jobs import runner


class Counter(runner.Executor):
    jobs = 0

    def execute(self, name, spec, output) -> dict:
        print("a line of log", file=sys.stderr, flush=True)
        if spec.get("fail"):
            raise RuntimeError("as asked")
        self.jobs += 1
        return {"jobs": self.jobs, "pid": os.getpid(), "messages": 0}


if __name__ == "__main__":
    runner.main(Counter())
