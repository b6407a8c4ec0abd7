"""A run on a standalone cluster whose worker has another network address than the driver, as a container has."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_core.history import schema
from explorer.analysis.running import java
from tests.analysis.conftest import NOON, a_life

pytestmark = pytest.mark.skipif("VITRINE_SPARK_CLUSTER" not in os.environ, reason="make test-spark runs this")
HOST, WORKER = "10.203.77.1", "10.203.77.2"
SECONDS = 120


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


@pytest.fixture(scope="module")
def master(network, tmp_path_factory):
    """The URL of a standalone master with one worker in the network namespace."""
    import pyspark

    folder = tmp_path_factory.mktemp("cluster")
    spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    environment = {**os.environ, "JAVA_HOME": str(java.find()), "SPARK_NO_DAEMONIZE": "1"}
    url = f"spark://{HOST}:7177"
    commands = [
        [spark_class, "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", "7177", "--webui-port", "0"],
        [
            *("ip", "netns", "exec", network, spark_class, "org.apache.spark.deploy.worker.Worker", url, "--host", WORKER),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), "--webui-port", "0"),
        ],
    ]
    processes = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log{number}").open("wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        _wait_for((folder / "log1"), b"Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)


def _wait_for(log: Path, text: bytes) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in log.read_bytes():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.fixture
def specification(tmp_path):
    """What the launcher writes, over 100 lives in two files."""
    files = []
    for part in range(2):
        rows = [a_life(sequence_number=50 * part + i) for i in range(50)]
        files.append(str(tmp_path / f"{part}.parquet"))
        pq.write_table(pa.Table.from_pylist(rows, schema=schema.LIFE), files[-1])
    pq.write_table(schema.LIFE.empty_table(), tmp_path / "still_there.parquet")
    (tmp_path / "scratch").mkdir()
    return {
        "name": "test", "lives": files, "still_there": str(tmp_path / "still_there.parquet"), "exported_xmin": 100,
        "entity_ids": [1], "start": NOON.isoformat(), "end": (NOON + timedelta(hours=1)).isoformat(), "bucket": "hour",
        "accuracy": 10_000, "most_reasons": 12, "result": str(tmp_path / "result"), "scratch": str(tmp_path / "scratch"),
        "spark": {"spark.driver.memory": "512m", "spark.executor.memory": "512m"},
    }  # fmt: skip


def last_event(specification: dict, folder: Path) -> dict:
    """Have a driver execute the job, and return its last event."""
    (folder / "specification.json").write_text(json.dumps(specification))
    (folder / "driver").mkdir()
    session = {name: specification[name] for name in ("master", "spark", "scratch")} | {"keep_seconds": 0, "keep_megabytes": 0}
    (folder / "driver" / "session.json").write_text(json.dumps(session))
    environment = {**os.environ, "JAVA_HOME": str(java.find()), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "explorer.analysis.jobs.runner", str(folder / "driver" / "session.json")]
    request = {"job": "time_in_queue", "specification": str(folder / "specification.json")}
    asked = f"{json.dumps(request)}\n".encode()
    done = subprocess.run(command, env=environment, input=asked, capture_output=True, check=False)
    return json.loads(done.stdout.splitlines()[-1])


def test_executors_with_another_address_reach_the_driver(master, specification, tmp_path):
    assert last_event(specification | {"master": master}, tmp_path) == {"event": "finished", "stays": False, "messages": 100}
    [whole] = pq.read_table(tmp_path / "result" / "whole").to_pylist()
    assert (whole["messages"], whole["completed"]) == (100, 100)


def test_executors_that_cannot_reach_the_driver_end_the_run(master, specification, tmp_path):
    wrong = specification["spark"] | {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    found = last_event(specification | {"master": master, "spark": wrong, "seconds_without_executors": 5}, tmp_path)
    assert found["event"] == "failed"
    assert "No executor of spark://" in found["message"] and "127.0.0.1" in found["message"]
