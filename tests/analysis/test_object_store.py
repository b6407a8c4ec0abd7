"""The pipeline's files in an object store or in HDFS: those that the archiver writes, and those that jobs read and write.

VITRINE_OBJECT_STORE names a folder that may be written, such as s3a://bucket/tests or hdfs://host/tests. Its other settings are
those of docs/history.md ("Object store").
"""

import os
import re
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.conf import settings as site

from broker_core.history import schema, storage
from explorer.analysis.running import driver as drivers
from explorer.analysis.running import java
from tests.analysis import every_job

PLACE = f"events/{every_job.PLACE}/slice-1.parquet"
NEEDED = {
    "s3a": "Spark has no hadoop-aws: set SPARK_CONF_jars_packages=org.apache.hadoop:hadoop-aws:3.5.0 where Maven can be reached.",
    "hdfs": "HDFS needs libhdfs: set HADOOP_HOME and CLASSPATH.",
}


def jars(name: str) -> list[str]:
    """The versions of a jar of this name among PySpark's."""
    import pyspark

    found = (Path(pyspark.__path__[0]) / "jars").glob(f"{name}-*.jar")
    return [re.sub(rf"^{name}-(.*)\.jar$", r"\1", path.name) for path in found]


@pytest.fixture
def store():
    """An empty folder of the object store, removed afterwards."""
    url = os.environ.get("VITRINE_OBJECT_STORE", "")
    if not url:
        pytest.skip("VITRINE_OBJECT_STORE names no object store, such as s3a://bucket/tests; docs/history.md says how.")
    scheme = url.split(":")[0]
    reachable = {
        "s3a": bool(jars("hadoop-aws")) or "hadoop-aws" in site.SPARK_CONF.get("spark.jars.packages", ""),
        "hdfs": "HADOOP_HOME" in os.environ,
    }
    if not reachable.get(scheme, False):
        pytest.skip(NEEDED.get(scheme, f"Spark and pyarrow do not both know {scheme}://."))
    here = storage.open_archive(f"{url}/{uuid.uuid4().hex}")
    yield here
    for folder in ("events/", "derived/"):
        here.delete(folder)


def test_lives_derived_in_an_object_store_equal_those_derived_in_a_folder(store, tmp_path, settings):
    [file, _] = every_job.written_events(tmp_path / "events" / every_job.PLACE, count=200)
    store.write(pq.read_table(file, partitioning=None).cast(schema.with_metadata(schema.EVENT)), PLACE)
    settings.RUNS_FOLDER = tmp_path / "runs"
    driver = drivers.Driver(drivers.session_of(settings.SPARK_CONF), java.find())
    try:
        jobs = every_job.Jobs(driver, tmp_path)
        asked = {"partitions": 2, "today": "2026-03-02"}
        jobs.done("lives", events=[file], output=str(tmp_path / "derived"), **asked)
        jobs.done("lives", events=[store.address(PLACE)], output=store.address("derived/run-1"), **asked)
    finally:
        driver.end()
    names = [one for one in store.below("derived/run-1") if one.endswith(".parquet")]
    for content in ("lives", "open"):
        table = pa.concat_tables(pq.read_table(store.open(name)) for name in names if f"/content={content}/" in name)
        assert every_job.rows_in(table) == [row[1:] for row in every_job.rows_of(tmp_path / "derived", content)]


def test_the_documented_hadoop_aws_version_matches_pysparks_hadoop():
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    [version] = jars("hadoop-client-api")
    for name in ("docs/history.md", "docker-compose.yml"):
        stated = re.findall(r"hadoop-aws:([0-9.]+[0-9])", (site.BASE_DIR / name).read_text())
        assert stated and set(stated) == {version}, name
