"""Each protocol has one table of refusals: every error that can reach a front end has a row there."""

import importlib
import pkgutil

import pytest

import broker_core
from broker_core.common.errors import BrokerError
from broker_core.queue_storage.http import errors as queue_storage_errors
from broker_core.queue_storage.rules.errors import AuthorizationMismatch, StorageRefusal
from broker_core.service_bus.administration import errors as administration_errors
from broker_core.service_bus.http import errors as service_bus_errors

FAMILIES = ("service_bus", "queue_storage", "rabbitmq")
# (QS, section 3.5)
DOCUMENTED = {
    400: {
        *("EmptyMetadataKey", "InvalidAuthenticationInfo", "InvalidHeaderValue", "InvalidMarker", "InvalidMetadata"),
        *("InvalidQueryParameterValue", "InvalidResourceName", "InvalidXmlDocument", "MetadataTooLarge"),
        *("MissingRequiredQueryParameter", "OutOfRangeInput", "OutOfRangeQueryParameterValue", "PopReceiptMismatch"),
    },
    403: {
        *("AuthenticationFailed", "AuthorizationPermissionMismatch", "AuthorizationProtocolMismatch"),
        *("AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch", "AuthorizationSourceIPMismatch"),
        *("CorsPreflightFailure", "InsufficientAccountPermissions"),
    },
    404: {"MessageNotFound", "QueueNotFound", "ResourceNotFound"},
    409: {"QueueAlreadyExists", "QueueDisabled"},
    413: {"RequestBodyTooLarge"},
}


def subclasses(cls: type) -> set[type]:
    return {cls} | {deeper for direct in cls.__subclasses__() for deeper in subclasses(direct)}


def reaching(family: str) -> set[type]:
    """The errors of the broker that can reach the front end of a family. A private one never leaves its module."""
    for module in pkgutil.walk_packages(broker_core.__path__, "broker_core."):
        importlib.import_module(module.name)
    of_others = [f"broker_core.{other}." for other in FAMILIES if other != family]
    return {
        cls
        for cls in subclasses(BrokerError)
        if cls.__module__.startswith("broker_core.")
        and not any(cls.__module__.startswith(other) for other in of_others)
        and not cls.__name__.startswith("_")
    }


@pytest.mark.parametrize("table", [service_bus_errors, administration_errors], ids=["messages", "administration"])
def test_service_bus_has_a_row_for_every_error(table):
    assert reaching("service_bus") == set(table.TABLE)


def test_queue_storage_has_a_row_for_every_error_that_does_not_carry_its_own():
    assert reaching("queue_storage") - subclasses(StorageRefusal) == set(queue_storage_errors.TABLE)


@pytest.mark.parametrize("cls", sorted(subclasses(StorageRefusal), key=lambda cls: cls.__name__))
def test_each_refusal_of_queue_storage_has_a_documented_status_and_code(cls):
    if cls in (StorageRefusal, AuthorizationMismatch):  # only their subclasses are raised
        assert not hasattr(cls, "code")
    else:
        assert cls.code in DOCUMENTED[cls.status]


OF_THE_SERVER = {"BrokerError", "BrokerUnavailable", "ConnectionClosed", "ServerBusy", "StorageFull"}  # or of its operator


@pytest.mark.parametrize(
    ("table", "throttling"),
    [
        (service_bus_errors, set()),
        (administration_errors, set()),
        (queue_storage_errors, {"TooManyFailedAuthentications"}),  # the service throttles with 503
    ],
    ids=["Service Bus", "administration", "Queue Storage"],
)
def test_only_the_server_s_own_problems_have_the_statuses_of_servers(table, throttling):
    own = {cls.__name__ for cls, row in table.TABLE.items() if row.status >= 500}
    assert own == OF_THE_SERVER | throttling
