"""Every use case with odd values in the place of each argument: it answers, or refuses and stores nothing."""

import importlib
import inspect
import pkgutil
import re
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial

import pytest
from django.db import transaction
from psycopg.pq import TransactionStatus

import broker_core
from broker_core.common.errors import BrokerError
from broker_core.operations import ClaimLost
from broker_core.rabbitmq.topology import compiled
from broker_core.runtime import processes
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.entity_settings import QueueSettings
from broker_core.store import connections
from broker_core.store.signals import Signal
from broker_core.store.use_cases import UseCase
from tests.fixtures import CONFIGURATION

from .odd_values import ODD, given, world


def _modules():
    """By name: the public use cases of a module."""
    results = {}
    for info in pkgutil.walk_packages(broker_core.__path__, "broker_core."):
        if not re.search(r"\.(migrations|celery_transport)", info.name):
            for name, value in vars(importlib.import_module(info.name)).items():
                if isinstance(value, UseCase) and value.__module__ == info.name and not name.startswith("_"):
                    results.setdefault(info.name.partition(".")[2], {})[name] = value
    return results


MODULES = _modules()
del MODULES["transfer.exporting"]  # it is refused inside a transaction, whatever it is given
FEW = (  # every call costs much: every fifth value
    *("service_bus.entities.lifecycle", "service_bus.preview", "rabbitmq.connections.channels", "rabbitmq.policy_preview"),
    *("operations.batches", "operations.records", "operations.undoing"),
)
SETTINGS = [field.name for field in fields(QueueSettings)] + ["nonsense"]
OPTIONS = ["metadata", "max_dequeue_count", "poison_queue", "expiry_grace", "strict_visibility", "access_policies", "nonsense"]
SERVICE = ["cors", "logging", "hour_metrics", "minute_metrics", "nonsense"]
DECLARED = ["type", "passive", "durable", "auto_delete", "arguments"]
CHANGES = {  # what **changes may name, or not
    "service_bus.entities.lifecycle.create_queue": SETTINGS,
    "service_bus.entities.lifecycle.update_entity": SETTINGS,
    "service_bus.preview.preview": SETTINGS,
    "queue_storage.accounts.set_service_properties": SERVICE,
    "queue_storage.queues.update_queue": OPTIONS,
    "queue_storage.preview.preview_options": OPTIONS,
    "rabbitmq.connections.channels.declare_queue": DECLARED,
}
VHOST = "odd host"
TABLES = (
    *("namespace", "storage_account", "entity", "rule", "shared_access_policy", "exchange", "binding", "policy"),
    *("message", "message_event", "session", "operation", "hidden_message", "import_line", "export_part"),
)
CHANGED = "pg_stat_get_xact_tuples_inserted(t) + pg_stat_get_xact_tuples_updated(t) + pg_stat_get_xact_tuples_deleted(t)"
WRITTEN = f"SELECT sum({CHANGED}) FROM unnest(ARRAY{[f'vitrine_{name}' for name in TABLES]}::regclass[]::oid[]) AS t"


# A wrong type is the annotations' business: Python's own errors will do, as long as nothing is stored.
REFUSALS = (BrokerError, ClaimLost, TypeError, AttributeError, ValueError)


class _Undone(Exception):
    """Ends a savepoint."""


@pytest.fixture
def everything(db, monkeypatch):
    """A world inside a transaction that is rolled back, and so is each call."""
    monkeypatch.setattr(Signal, "wait", lambda signal, seconds: pytest.fail("it waits"))
    processes.leave_all()
    connections.current().execute("DELETE FROM vitrine_broker_process")
    with connections.callers_transaction():
        for table in CONFIGURATION:  # sweeps would work on what other tests left
            connections.current().execute(f"DELETE FROM {table}")
        yield world()
    processes.leave_all()
    renewer.drop(renewer.tokens())


def test_the_use_cases_named_in_these_tests_exist():
    assert {name.rpartition(".")[0] for name in CHANGES} | set(FEW) <= set(MODULES)
    assert all(name.rpartition(".")[2] in MODULES[name.rpartition(".")[0]] for name in CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_use_case_returns_or_raises_a_broker_error_for_odd_values(everything, module):
    makers, wrong = given(everything)[module], []
    for name, case in MODULES[module].items():
        make = makers.get(name) or makers["*"]
        with _undone():
            right = make()
            case(**right)
        for what, change in _changes(module, case, right):
            if problem := _problem(case, make, change, right):
                wrong.append(f"{name}({what}): {problem}")
    assert not wrong, "\n" + "\n".join(wrong)


@contextmanager
def _undone():
    try:
        with transaction.atomic():
            yield
            raise _Undone
    except _Undone:
        compiled.forget(VHOST)


def _problem(case, make, change, right):
    """What is wrong with how a call with changed arguments ends; None if nothing is."""
    with _undone():
        arguments = make()
        before = _written()
        try:
            case(**change(arguments))
        except REFUSALS:
            return None if _written() in (None, before) else "it is refused, but something is stored"
        except Exception as exc:
            return f"{type(exc).__name__}: {str(exc)[:160]}"
    return None


def _changes(module, case, right):
    """Each as a text and a function that puts one odd value into right arguments."""
    parameters = inspect.signature(case).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    if len(names) < len(parameters):
        names += CHANGES.get(f"{module}.{case.__name__}", ["nonsense"])
    for place, name in enumerate(names):
        for odd in ODD[place % 5 :: 5] if module in FEW else ODD:
            yield f"{name}={odd!r:.60}", partial(_with, name=name, odd=odd)
    for name, value in right.items():
        for inner in () if name == "settings" else _fields_of(value):
            for odd in ODD:
                yield f"{name}.{inner}={odd!r:.60}", partial(_with_field, name=name, path=inner.split("."), odd=odd)


def _with(arguments, name, odd):
    return {**arguments, name: odd}


def _with_field(arguments, name, path, odd):
    value = arguments[name]
    if isinstance(value, list):
        return {**arguments, name: [_replaced(value[0], path, odd), *value[1:]]}
    return {**arguments, name: _replaced(value, path, odd)}


def _replaced(value, path, odd):
    return replace(value, **{path[0]: _replaced(getattr(value, path[0]), path[1:], odd) if path[1:] else odd})


def _fields_of(value):
    """The names of what a dataclass holds, or the first of a list, with what those hold."""
    value = value[0] if isinstance(value, list) and value else value
    if not is_dataclass(value):
        return []
    names = [field.name for field in fields(value) if field.init]
    nested = [name for name in names if is_dataclass(getattr(value, name))]
    return names + [f"{name}.{inner}" for name in nested for inner in _fields_of(getattr(value, name))]


def _written():
    """How many rows this transaction has changed, what was undone with a savepoint as well; None if it can only be undone."""
    connection = connections.current()
    if connection.info.transaction_status == TransactionStatus.INERROR:
        return None
    return connection.execute(WRITTEN).fetchone()[0]
