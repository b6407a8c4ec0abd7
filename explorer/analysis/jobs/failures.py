"""Says in a sentence why a job failed and what to do: the root cause, not the call that noticed it."""

import re
from collections.abc import Iterator, Mapping

from .masters import is_local

MOST_CHARACTERS = 500
_FILE = re.compile(r"(?:file:|hdfs:|s3a?:)?/[^\s'\"]+\.parquet")
_MISSING = r"PATH_NOT_FOUND|FileNotFoundException|FAILED_READ_FILE.FILE_NOT_EXIST"
# A part of the text of a cause, and the sentence about it. The first match applies.
_KNOWN = (
    (
        r"No space left on device|Disk quota exceeded",
        "A disk is full. Free some space where Spark's scratch files are ({scratch}) or where the archive is ({archive}), or "
        "choose a shorter range, then start the analysis again.",
    ),
    (
        r"OutOfMemoryError|Java heap space|GC overhead limit",
        "Spark ran out of memory. Choose a shorter range, or give it more: SPARK_CONF_driver_memory=4g (and "
        "SPARK_CONF_executor_memory on a cluster).",
    ),
    (
        r"ExecutorLostFailure|Executor heartbeat timed out|Remote RPC client disassociated|FetchFailed",
        "The cluster lost executors too often. See the workers' logs, then start the analysis again.",
    ),
    (
        r"All masters are unresponsive|Master removed our application",
        "The Spark master {master} does not respond. Check SPARK_MASTER and that the master is running.",
    ),
    (
        r"UnknownHostException|ConnectException|NoRouteToHostException|SdkClientException|No FileSystem for scheme"
        r"|ClassNotFoundException: Class org.apache.hadoop.fs",
        "The archive at {archive} cannot be reached by Spark. The driver and every worker must reach it under this address, and "
        "have the jars for it.",
    ),
    (
        r"AccessControlException|AccessDeniedException|PermissionError|Permission denied",
        "Permission was denied for {file}. The driver and every worker must be allowed to read the archive ({archive}), and to "
        "write to it.",
    ),
    (
        _MISSING,
        "The archive file {file} is missing. Run `manage.py verify_archive --repair`.",
    ),
    (
        r"COLUMN_DATA_TYPE_MISMATCH|SchemaColumnConvertNotSupportedException|Unsupported encoding|Unrecognized codec"
        r"|Unknown logical type",
        "The archive file {file} is not one that this version of Vitrine can read: another program, or a newer version, wrote "
        "it. Run `manage.py verify_archive --deep --repair`, then start the analysis again.",
    ),
    (
        r"is not a Parquet file|FAILED_READ_FILE|Could not read footer|CANNOT_READ_FILE_FOOTER|corrupt|can ?not read",
        "The archive file {file} is damaged. Run `manage.py verify_archive --deep --repair`, then start the analysis again.",
    ),
    (
        r"Py4JNetworkError|Answer from Java side is empty|Connection refused|JAVA_GATEWAY_EXITED",
        "Spark's driver ended unexpectedly; the machine may have run out of memory. See the log.",
    ),
)
_MISSING_ON_A_CLUSTER = (
    "The archive file {file} is missing, or a worker of the cluster cannot reach it: every worker must see the archive "
    "({archive}) under the same path. If it is missing here too, run `manage.py verify_archive --repair`."
)


class JobProblem(Exception):
    """A problem that is a sentence already."""


def in_words(problem: BaseException, spec: Mapping[str, str]) -> str:
    """Why the job failed, in a sentence. The text of an unknown cause is unchanged."""
    causes = list(chain(problem))
    return (known(problem, spec) or causes[-1])[:MOST_CHARACTERS]


def known(problem: BaseException, spec: Mapping[str, str]) -> str:
    """The sentence for a known cause; empty: it is unknown. spec: of the job; `scratch`, `archive` and `master` are named."""
    if isinstance(problem, JobProblem):
        return str(problem)[:MOST_CHARACTERS]
    text = "\n".join(chain(problem))
    for pattern, sentence in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            on_a_cluster = pattern is _MISSING and not is_local(spec.get("master", "local"))
            file = _FILE.search(text)
            named = {name: spec.get(name, "") for name in ("scratch", "archive", "master")}
            template = _MISSING_ON_A_CLUSTER if on_a_cluster else sentence
            return template.format(file=file[0] if file else "", **named)[:MOST_CHARACTERS]
    return ""


def chain(problem: BaseException) -> Iterator[str]:
    """The problem and its causes, Java's included, each as `Type: message`; the root cause is last."""
    yield _first_line(type(problem).__name__, str(problem))
    java = getattr(problem, "java_exception", None) or getattr(problem, "_origin", None)
    while java is not None:
        yield _first_line(java.getClass().getSimpleName(), java.getMessage())
        java = java.getCause()
    if problem.__cause__ is not None:
        yield from chain(problem.__cause__)


def _first_line(kind: str, message: str | None) -> str:
    lines = (message or "").strip().splitlines()
    return f"{kind}: {lines[0] if lines else 'no message'}"
