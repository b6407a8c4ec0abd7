"""Sends functions to processes that have no part of Vitrine, as the workers of a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from pyspark import cloudpickle


@contextmanager
def modules(*pickled_modules: ModuleType) -> Iterator[None]:
    """Within the block, functions and classes of these modules are pickled with their code instead of their names."""
    for module in pickled_modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in pickled_modules:
            cloudpickle.unregister_pickle_by_value(module)
