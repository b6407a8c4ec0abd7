"""What the address of a Spark master says. Without imports, so that a launcher need not load PySpark."""


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")
