"""Every job on a standalone cluster: two workers on the loopback address give what local mode gives, cell by cell; and a worker
that has another network address than the driver, as a container has, reaches it."""

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from explorer.analysis.running import driver as drivers
from explorer.analysis.running import java
from tests.analysis import every_job
from tests.analysis.every_job import Jobs

pytestmark = [
    pytest.mark.skipif("VITRINE_SPARK_CLUSTER" not in os.environ, reason="make test-spark runs this"),
    pytest.mark.timeout(3600),
]
LOOPBACK, HOST, WORKER = "127.0.0.1", "10.203.77.1", "10.203.77.2"
SECONDS = 300  # for a daemon to start; a busy machine needs minutes
C1 = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short-lived JVMs compile less
LOCAL = "local[2]"
SECRET = "the cluster's own"  # set as docker-compose.yml does
SMALL = {
    "spark.driver.memory": "1g", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": C1,
    "spark.authenticate": "true", "spark.authenticate.secret": SECRET,
    "spark.sql.adaptive.coalescePartitions.enabled": "false",  # so that both workers have a task, also of few rows
}  # fmt: skip
ON_LOOPBACK = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def network():
    """The name of a network namespace with the address WORKER, which reaches this machine at HOST."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make a network namespace")
    name = f"vt{uuid.uuid4().hex[:6]}"
    if not _ip("netns", "add", name):
        pytest.skip("network namespaces are not allowed here")
    try:
        made = (
            _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
            and _ip("addr", "add", f"{HOST}/30", "dev", f"{name}a")
            and _ip("link", "set", f"{name}a", "up")
            and _ip("-n", name, "addr", "add", f"{WORKER}/30", "dev", f"{name}b")
            and _ip("-n", name, "link", "set", f"{name}b", "up")
            and _ip("-n", name, "link", "set", "lo", "up")
            and _ip("-n", name, "route", "add", "default", "via", HOST)
        )
        if not made:
            pytest.skip("a pair of network interfaces is not allowed here")
        yield name
    finally:
        _ip("netns", "del", name)


@contextmanager
def a_cluster(folder: Path, host: str, port: int, workers: list[tuple[list[str], str]]) -> Iterator[str]:
    """The URL of a standalone master with workers of one core: of each the command that starts it elsewhere, and its address.
    Executors have their files in `work-<number>` of the folder."""
    import pyspark

    spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    quick = {"SPARK_LAUNCHER_OPTS": C1, "SPARK_DAEMON_MEMORY": "256m"}
    secret = {"_SPARK_AUTH_SECRET": SECRET, "SPARK_DAEMON_JAVA_OPTS": f"{C1} -Dspark.authenticate=true"}
    environment = {**os.environ, **quick, **secret, "JAVA_HOME": str(java.find()), "SPARK_NO_DAEMONIZE": "1"}
    url, ports = f"spark://{host}:{port}", ["--webui-port", "0"]
    commands = [[spark_class, "org.apache.spark.deploy.master.Master", "--host", host, "--port", str(port), *ports]]
    for number, (within, address) in enumerate(workers):
        of_worker = ["--host", address, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), *ports]
        commands.append([*within, spark_class, "org.apache.spark.deploy.worker.Worker", url, *of_worker])
    processes = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log{number}").open("wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            if number == 0:
                _wait_for(folder / "log0", b"New state: ALIVE")
        for number in range(len(workers)):
            _wait_for(folder / f"log{number + 1}", b"Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)


@pytest.fixture
def master(network, tmp_path):
    """The URL of a master whose worker is in the network namespace."""
    with a_cluster(tmp_path, HOST, 7177, [(["ip", "netns", "exec", network], WORKER)]) as url:
        yield url


def _wait_for(log: Path, text: bytes) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in log.read_bytes():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@contextmanager
def jobs_on(master: str, folder: Path, settings, **spark: str) -> Iterator[Jobs]:
    """Jobs that a driver executes with this master."""
    settings.SPARK_MASTER, settings.RUNS_FOLDER, settings.SPARK_NICE = master, folder / "runs", 0
    folder.mkdir(exist_ok=True)
    session = {
        "master": master, "archive": str(folder), "spark": SMALL | spark, "small": True, "keep_seconds": 600,
        "keep_megabytes": 10_000, "seconds_without_executors": 30,
    }  # fmt: skip
    driver = drivers.Driver(session, java.find())
    try:
        yield Jobs(driver, folder)
    finally:
        driver.end()


def test_a_driver_without_the_cluster_secret_gets_no_executors(tmp_path):
    with a_cluster(tmp_path, LOOPBACK, 7179, [([], LOOPBACK)]) as url:
        assert _sum_on(url, {"spark.authenticate.secret": SECRET}) == "45"
        assert _sum_on(url, {"spark.authenticate.secret": "another"}) != "45"
    assert SECRET.encode() not in (tmp_path / "log1").read_bytes()


def _sum_on(url: str, spark: dict[str, str]) -> str:
    """The sum of 0 to 9, computed by a driver of its own on the cluster; empty if the cluster refuses it."""
    settings = {"spark.ui.enabled": "false", "spark.authenticate": "true", **ON_LOOPBACK, **spark}
    configured = "".join(f".config({name!r}, {value!r})" for name, value in settings.items())
    code = f"from pyspark.sql import SparkSession as S; s = S.builder.master({url!r}){configured}.getOrCreate(); "
    code += "print(s.sparkContext.parallelize(range(10), 1).sum())"
    environment = {**os.environ, "JAVA_HOME": str(java.find()), "SPARK_LAUNCHER_OPTS": C1}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout.strip()


def test_every_job_has_the_same_result_on_two_workers_as_in_local_mode(tmp_path, settings):
    with jobs_on(LOCAL, tmp_path / "local", settings, **{"spark.log.level": "ERROR"}) as jobs:
        expected = every_job.everything(jobs, tmp_path / "local")
    workers = [([], LOOPBACK), ([], LOOPBACK)]
    with (
        a_cluster(tmp_path, LOOPBACK, 7178, workers) as url,
        jobs_on(url, tmp_path / "cluster", settings, **ON_LOOPBACK) as jobs,
    ):
        result = every_job.everything(jobs, tmp_path / "cluster")
    assert all(list((tmp_path / f"work-{number}").glob("app-*/*")) for number in (0, 1)), "both workers had an executor"
    assert result.keys() == expected.keys()
    for name, rows in expected.items():
        assert len(result[name]) == len(rows), name
        for mine, theirs in zip(result[name], rows, strict=True):
            assert mine == theirs, name
    answered = [name for name in every_job.REPORTS if any(rows for key, rows in expected.items() if key.split()[0] == name)]
    assert answered == every_job.REPORTS, "the history is such that each report has something to say"
    assert len(expected["what_if outcomes"]) > 41, "the what if report replayed"


def test_executors_with_another_address_reach_the_driver(master, settings, tmp_path):
    events = every_job.written_events(tmp_path / "events" / every_job.PLACE, count=200)
    with jobs_on(master, tmp_path / "run", settings) as jobs:
        jobs.done("lives", events=events, output=str(tmp_path / "out"), partitions=2, today="2026-03-02")
    assert every_job.rows_of(tmp_path / "out", "lives")


def test_executors_that_cannot_reach_the_driver_end_the_run(master, settings, tmp_path):
    events = every_job.written_events(tmp_path / "events" / every_job.PLACE, count=200)
    with jobs_on(master, tmp_path / "run", settings, **ON_LOOPBACK) as jobs:
        result = jobs.run(
            "lives", events=events, output=str(tmp_path / "out"), partitions=2, today="2026-03-02", seconds_without_executors=5
        )
    assert result["event"] == "failed"
    assert "No executor of spark://" in result["message"] and "127.0.0.1" in result["message"]
