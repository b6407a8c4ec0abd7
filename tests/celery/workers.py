"""Starting, watching and ending real worker processes of the test project."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.eventually import eventually

from .project import make_app

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Project:
    """A Celery project on one namespace: publish tasks, start workers, see what ran."""

    dsn: str
    namespace: str
    folder: Path
    max_delivery_count: int = 10
    workers: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self):
        self.app = make_app(self.dsn, self.namespace, max_delivery_count=self.max_delivery_count)
        self.log = self.folder / f"{self.namespace}.log"
        self.log.touch()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
            "PROJECT_DSN": self.dsn,
            "PROJECT_NAMESPACE": self.namespace,
            "PROJECT_LOG": str(self.log),
            "PROJECT_MAX_DELIVERY_COUNT": str(self.max_delivery_count),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
        }

    def publish(self, name: str, *args, **options) -> str:
        return self.app.send_task(name, args, **options).id

    def command(self, *args: str, seconds: float = 60) -> str:
        """Run the celery command and return what it prints."""
        command = [sys.executable, "-m", "celery", "-A", "tests.celery.project", *args]
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        ).stdout

    def start_worker(self, *args: str, processes: int = 2) -> subprocess.Popen:
        """A prefork worker in a session of its own, ready to take tasks."""
        name = f"w{len(self.workers)}@{self.namespace}"
        output = self.folder / f"{name}.out"
        command = [sys.executable, "-m", "celery", "-A", "tests.celery.project", "worker", "-P", "prefork", "-c", str(processes)]
        worker = subprocess.Popen(
            [*command, "-n", name, "-l", "INFO", *args],
            env=self.environment,
            cwd=ROOT,
            stdout=output.open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        worker.output = output
        self.workers.append(worker)
        eventually(lambda: "ready." in output.read_text() or worker.poll() is not None, 20, f"{name} is ready")
        assert worker.poll() is None, output.read_text()
        return worker

    def children(self, worker: subprocess.Popen) -> list[int]:
        """The pool processes of a worker."""
        completed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(worker.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in completed.stdout.split()]

    def kill(self, worker: subprocess.Popen) -> None:
        """SIGKILL of the worker's main process and all its children at once."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)

    def stop(self, worker: subprocess.Popen, seconds: float = 15) -> None:
        """Warm shutdown: running tasks end, the rest goes back."""
        worker.send_signal(signal.SIGTERM)
        worker.wait(seconds)

    def stop_all(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                self.kill(worker)

    def ran(self, what: str = "end") -> Counter:
        """How often each task id got to `what` ("begin" or "end")."""
        return Counter(line.split()[1] for line in self.log.read_text().splitlines() if line.startswith(what + " "))

    def instants(self, task_id: str, what: str = "begin") -> list[float]:
        """When a task got to `what`, in seconds since 1970."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [float(parts[3]) for parts in lines if parts[:2] == [what, task_id]]


@contextmanager
def project(dsn: str, namespace: str, folder: Path, **options) -> Iterator[Project]:
    made = Project(dsn, namespace, folder, **options)
    try:
        yield made
    finally:
        made.stop_all()
        made.app.close()
