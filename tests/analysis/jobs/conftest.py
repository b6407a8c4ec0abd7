"""One Spark session for all tests of jobs: it takes seconds to start. It needs no database."""

import os

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from explorer.analysis.jobs import runner
    from explorer.analysis.running import java

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java.find())  # that of the wheel, on a machine without an installed one
    session = runner.session(
        {
            "master": "local[2]",
            "scratch": str(tmp_path_factory.mktemp("spark")),
            "driver_memory": "1g",
            "spark": {
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        }
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
