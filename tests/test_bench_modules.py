"""`make bench` is run by hand: what it imports must be there all the same."""

import importlib
import pkgutil

import pytest

import bench

MODULES = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_each_module_can_be_imported(name):
    assert importlib.import_module(f"bench.{name}")
