"""docs/compatibility.md names tests that exist, and has a row for each operation and error of docs/queue-storage-rest.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
REFERENCE = (ROOT / "docs" / "queue-storage-rest.md").read_text()
ROWS = [
    line
    for line in PAGE.splitlines()
    if line.startswith("|") and not re.match(r"\| (---|feature|operation|code|case|element) ", line)
]
TEST = re.compile(r"\| ([\w/]+\.py) (\w+) \|$")
# The codes that the service's documentation has for queues.
DOCUMENTED = {
    *("OutOfRangeQueryParameterValue", "InvalidQueryParameterValue", "MissingRequiredQueryParameter", "InvalidResourceName"),
    *("OutOfRangeInput", "InvalidXmlDocument", "InvalidHeaderValue", "PopReceiptMismatch", "MessageTooLarge", "InvalidMarker"),
    *("InvalidMetadata", "MetadataTooLarge", "EmptyMetadataKey", "InvalidAuthenticationInfo", "AuthenticationFailed"),
    *("AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch"),
    *("AuthorizationProtocolMismatch", "AuthorizationSourceIPMismatch", "CorsPreflightFailure", "QueueNotFound"),
    *("MessageNotFound", "ResourceNotFound", "QueueAlreadyExists", "QueueBeingDeleted", "QueueDisabled", "QueueNotEmpty"),
    *("RequestBodyTooLarge", "UnsupportedHttpVerb", "InternalError", "OperationTimedOut", "ServerBusy"),
}


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the rows of a section's table."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_row_names_a_test_that_exists(row):
    file, name = TEST.search(row).groups()
    assert re.search(rf"^(async )?def test_{name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (file, name)


def test_each_operation_has_a_row():
    described = [row[0] for row in table(REFERENCE, "Operations")]
    assert len(described) == 17
    assert {*described, "get user delegation key"} == {row[0] for row in table(PAGE, "Queue Storage: operations")}


def test_each_operation_of_the_administration_has_a_row():
    reference = (ROOT / "docs" / "service-bus-administration.md").read_text()
    described = {row[0] for row in table(reference, "Operations")}
    assert len(described) == 9
    assert described <= {row[0] for row in table(PAGE, "Service Bus administration: operations")}


def test_each_error_has_a_row():
    described = {code for row in table(REFERENCE, "Errors") for code in re.findall(r"`(\w+)`", row[1])}
    rows = {row[0].strip("`") for row in table(PAGE, "Queue Storage: errors")}
    assert described | DOCUMENTED == rows


def test_the_reference_lists_what_is_served():
    from broker_core.queue_storage.http import operations
    from broker_core.queue_storage.rules import errors

    served = {(method, level) for method, level, *_ in operations.TABLE}
    assert len(served) <= len(table(REFERENCE, "Operations"))
    codes = {
        getattr(kind, "code", None)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.StorageRefusal)
    }
    described = {code for row in table(REFERENCE, "Errors") for code in re.findall(r"`(\w+)`", row[1])}
    assert codes - {"InvalidInput", None} <= described
