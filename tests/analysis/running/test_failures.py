"""A failed job says its root cause and what to do."""

from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as F

from explorer.analysis.jobs import failures, runner, schemas, stored

SPEC = {"scratch": "/data/runs/run-1/scratch", "archive": "/data/archive", "master": "spark://m:7077"}
A_FILE = "file:///a/slice-1.parquet"


class Thrown:
    """A Java exception as Py4J shows it."""

    def __init__(self, kind, message, cause=None):
        self._kind, self._message, self._cause = kind, message, cause

    def getClass(self):
        return self

    def getSimpleName(self):
        return self._kind

    def getMessage(self):
        return self._message

    def getCause(self):
        return self._cause


def py4j(java):
    problem = Exception("An error occurred while calling o821.count.\n: org.apache.spark.SparkException: ...")
    problem.java_exception = java
    return problem


def read_failed(kind, message):
    """As Spark says that it could not read a file: the condition, and below it the reader's problem."""
    return Thrown(
        "SparkException", f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {A_FILE}.", Thrown(kind, message)
    )


@pytest.mark.parametrize(
    ("java", "said"),
    [
        (Thrown("SparkException", "Job aborted", Thrown("IOException", "No space left on device")),
         "A disk is full. Free some space where Spark's scratch files are (/data/runs/run-1/scratch) or where the archive is"),
        (read_failed("RuntimeException", f"{A_FILE} is not a Parquet file. Expected magic number at tail"),
         f"The archive file {A_FILE} is damaged."),
        (read_failed("RuntimeException", f"{A_FILE} is not a Parquet file (length is too low: 0)"),
         f"The archive file {A_FILE} is damaged."),
        (Thrown("SparkException", f"[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] reading file {A_FILE}.",
                Thrown("SchemaColumnConvertNotSupportedException", "column: [size], physicalType: BINARY")),
         f"The archive file {A_FILE} is not one that this version of Vitrine can read"),
        (Thrown("SparkException", f"[FAILED_READ_FILE.FILE_NOT_EXIST] File {A_FILE} does not exist"),
         f"The archive file {A_FILE} is missing, or a worker of the cluster cannot reach it"),
        (read_failed("ConnectException", "Call from worker-1 to namenode:8020 failed: Connection refused"),
         "The archive at /data/archive cannot be reached by Spark."),
        (Thrown("UnsupportedFileSystemException", 'No FileSystem for scheme "s3"'), "The archive at /data/archive cannot be"),
        (read_failed("FileNotFoundException", "/a/slice-1.parquet (Permission denied)"), f"Permission was denied for {A_FILE}."),
        (Thrown("SparkException", "failed", Thrown("OutOfMemoryError", "Java heap space")), "Spark ran out of memory."),
        (Thrown("SparkException", "ExecutorLostFailure (executor 1 exited)"), "The cluster lost executors too often."),
        (Thrown("SparkException", "All masters are unresponsive!"), "The Spark master spark://m:7077 does not respond."),
        (Thrown("SparkException", "Job aborted", Thrown("ArithmeticException", "long overflow\n at x")),
         "ArithmeticException: long overflow"),
    ],
)  # fmt: skip
def test_the_root_cause_is_reported(java, said):
    text = failures.in_words(py4j(java), SPEC)
    assert text.startswith(said)
    assert "o821" not in text and "\n" not in text


@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left on device", "/data/archive/x"), OSError(122, "Disk quota exceeded")]
)
def test_a_full_disk_of_the_launcher_is_a_known_cause(problem):
    assert failures.known(problem, SPEC).startswith("A disk is full.")
    assert failures.known(OSError(5, "Input/output error"), SPEC) == ""


@pytest.mark.parametrize(
    "problem", [Py4JNetworkError("Error while sending or receiving"), Py4JNetworkError("Answer from Java side is empty")]
)
def test_a_killed_jvm_is_reported_as_ended(problem):
    assert failures.in_words(problem, SPEC).startswith(
        "Spark's driver ended unexpectedly; the machine may have run out of memory."
    )


def test_a_python_error_is_reported_unchanged():
    assert failures.in_words(KeyError("lives"), {}) == "KeyError: 'lives'"
    assert failures.in_words(failures.JobProblem("No executor."), {}) == "No executor."


def test_a_truncated_file_is_named(spark, tmp_path):
    frame = spark.range(1000).withColumn("size", F.col("id").cast("int"))
    frame.coalesce(1).write.parquet(str(tmp_path / "lives"))
    [file] = (tmp_path / "lives").glob("*.parquet")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(Exception) as failed:
        spark.read.schema(schemas.LIFE).parquet(str(file)).agg({"size": "sum"}).collect()
    said = failures.in_words(failed.value, SPEC)
    assert file.name in said and "is damaged" in said


@pytest.mark.parametrize(
    ("content", "said"), [(b"id,name\n1,x\n", "is damaged"), ("another program's", "is not one that this version")]
)
def test_a_foreign_file_is_named(spark, tmp_path, content, said):
    """Spark skips an empty file without a word: verification.require_intact finds those, by their size."""
    file = tmp_path / "other.parquet"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        pq.write_table(pa.table({"size": [content]}), file)
    with pytest.raises(Exception) as failed:
        spark.read.schema(schemas.LIFE).parquet(str(file)).agg({"size": "sum"}).collect()
    text = failures.in_words(failed.value, SPEC)
    assert "other.parquet" in text and said in text


def test_a_missing_file_is_named(spark, tmp_path):
    with pytest.raises(Exception) as failed:
        stored.read(spark, schemas.ENDED, [str(tmp_path / "gone.parquet")]).collect()
    said = failures.in_words(failed.value, SPEC | {"master": "local[2]"})
    assert "gone.parquet is missing" in said


class Cluster:
    """A session with so many executors."""

    def __init__(self, executors):
        self.executors, self.cancelled = executors, 0
        self.sparkContext = self._jsc = self
        self.master = "spark://m:7077"

    def sc(self):
        return self

    def getExecutorMemoryStatus(self):
        return self

    def size(self):
        return self.executors + 1

    def getConf(self):
        return {"spark.driver.host": "10.0.0.5"}

    def cancelAllJobs(self):
        self.cancelled += 1


def test_a_cluster_without_executors_ends_the_run():
    cluster = Cluster(0)
    watchdog = runner.Watchdog(cast("Any", cluster), -1)
    watchdog.look()
    watchdog.look()
    assert cluster.cancelled == 2
    assert "Executors must reach the driver at 10.0.0.5" in watchdog.problem


def test_a_cluster_with_executors_is_left_alone():
    cluster = Cluster(1)
    watchdog = runner.Watchdog(cast("Any", cluster), 60)
    watchdog.look()
    assert (cluster.cancelled, watchdog.problem) == (0, "")


@pytest.mark.parametrize(("master", "local"), [("local[*]", True), ("local", True), ("spark://h:7077", False),
                                               ("local-cluster[1,1,1024]", False), ("yarn", False)])  # fmt: skip
def test_only_a_local_master_listens_on_the_loopback_address(master, local):
    assert runner.is_local(master) is local
