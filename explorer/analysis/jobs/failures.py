"""Says in a sentence why a job failed and what to do: the root cause, not the call that noticed it."""

import re
from collections.abc import Iterator

MOST_CHARACTERS = 500
_FILE = re.compile(r"(?:file:|hdfs:|s3a?:)?/[^\s'\"]+\.parquet")
# What the text of a cause contains, and what is said about it.
_KNOWN = (
    (
        r"No space left on device|Disk quota exceeded",
        "A disk is full: Spark's scratch files are in {scratch}. Free some space, or choose a shorter range, then start the "
        "analysis again.",
    ),
    (
        r"PATH_NOT_FOUND|FileNotFoundException|FAILED_READ_FILE.FILE_NOT_EXIST",
        "The archive file {file} is missing. Run `manage.py verify_archive --repair`. The workers of a cluster must see the "
        "archive under the same path.",
    ),
    (
        r"is not a Parquet file|FAILED_READ_FILE|Could not read footer|CANNOT_READ_FILE_FOOTER|corrupt|can ?not read",
        "The archive file {file} is damaged. Run `manage.py verify_archive --deep --repair`, then start the analysis again.",
    ),
    (
        r"OutOfMemoryError|Java heap space|GC overhead limit",
        "Spark ran out of memory. Choose a shorter range, or give it more: SPARK_CONF_driver_memory=4g (and "
        "SPARK_CONF_executor_memory on a cluster).",
    ),
    (
        r"ExecutorLostFailure|Executor heartbeat timed out|Remote RPC client disassociated",
        "The cluster lost executors too often. See the workers' logs, then start the analysis again.",
    ),
    (
        r"All masters are unresponsive|Master removed our application",
        "The Spark master {master} does not respond. Check SPARK_MASTER and that the master is running.",
    ),
    (
        r"Answer from Java side is empty|Connection refused|JAVA_GATEWAY_EXITED",
        "Spark's driver ended unexpectedly; the machine may have run out of memory. See the log.",
    ),
)


class JobProblem(Exception):
    """A problem that is a sentence already."""


def in_words(problem: BaseException, spec: dict) -> str:
    """Why the job failed, in a sentence. spec: of the job. An unknown cause is given as it is."""
    if isinstance(problem, JobProblem):
        return str(problem)[:MOST_CHARACTERS]
    causes = list(chain(problem))
    text = "\n".join(causes)
    for pattern, sentence in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            file = _FILE.search(text)
            named = {"file": file[0] if file else "", "scratch": spec.get("scratch", ""), "master": spec.get("master", "")}
            return sentence.format(**named)[:MOST_CHARACTERS]
    return causes[-1][:MOST_CHARACTERS]


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
