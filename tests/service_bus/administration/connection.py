"""Requests of the administration API as bytes on a socket: what clients would never send, too."""

from __future__ import annotations

import re
import time

from broker_core.service_bus.entities.shared_access import ROOT_POLICY
from broker_core.service_bus.rules import sas
from tests.wire.http_connection import Headers, HttpConnection, Reply

from .client import NAMES

UPDATE = [("If-Match", "*")]
SUPPLEMENTARY, DLQ_SUPPLEMENTARY = "ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"


class AdministrationReply(Reply):
    @property
    def element(self) -> dict[str, str]:
        """The texts in the description of an entry, by the names of their elements."""
        [description] = self.root.find("a:content", NAMES)
        return {child.tag.rpartition("}")[2]: child.text or "" for child in description}

    @property
    def titles(self) -> list[str]:
        """Of the entries of a feed."""
        return [found.text for found in self.root.findall("a:entry/a:title", NAMES)]


class Connection(HttpConnection[AdministrationReply]):
    """One kept-alive connection, with the key of a policy."""

    reads = AdministrationReply

    def __init__(self, port: int, key: str, policy: str = ROOT_POLICY):
        super().__init__(port)
        self.key, self.policy = key, policy

    def request(
        self, method: str, target: str, body: bytes = b"", headers: Headers = (), *, token: str | None = None
    ) -> AdministrationReply:
        """target: a path with its query. token: None: one for the whole host; "": none."""
        return self.send(method, target, self.headers(method, body, headers, token=token), body)

    def headers(
        self, method: str, body: bytes = b"", headers: Headers = (), *, token: str | None = None
    ) -> list[tuple[str, str]]:
        sent = [("Host", f"127.0.0.1:{self.port}"), *headers]
        token = self.token() if token is None else token
        if token:
            sent.append(("Authorization", token))
        if body or method == "PUT":
            sent.append(("Content-Length", str(len(body))))
        return sent

    def token(self, path: str = "", *, key: str | None = None, policy: str | None = None, seconds: int = 600) -> str:
        uri = f"http://127.0.0.1:{self.port}{path}"
        return sas.sign(uri, policy or self.policy, key or self.key, int(time.time()) + seconds)


def refused(reply: AdministrationReply, status: int, sub_code: int) -> str:
    """Check an error's form; returns its sentence."""
    assert (reply.status, reply.headers["content-type"]) == (status, "application/xml; charset=utf-8"), reply
    assert [child.tag for child in reply.root] == ["Code", "Detail"] and reply.text("Code") == str(status)
    found = re.fullmatch(
        r"SubCode=(\d{5})\. (.+)\. (?:You can retry|Retrying the same request does not help)\. TrackingId:(\S+), "
        r"SystemTracker:.*, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        reply.text("Detail"),
        re.DOTALL,
    )
    assert found, reply
    assert (int(found[1]), found[3]) == (sub_code, reply.headers["vitrine-tracking-id"]), reply
    assert len(reply.body) < 3000
    return found[2]


def sql_filter(expression: str, parameters: str = "") -> str:
    return f'<Filter i:type="SqlFilter"><SqlExpression>{expression}</SqlExpression>{parameters}</Filter>'


def pair(value: str, key: str = "k") -> str:
    """A parameter or property. value: its element Value."""
    return f"<KeyValueOfstringanyType><Key>{key}</Key>{value}</KeyValueOfstringanyType>"


def authorization_rule(
    name: str = "app", rights: tuple[str, ...] = ("Send",), keys: str = "", *, kind: str = "SharedAccessAuthorizationRule"
) -> str:
    written = "".join(f"<AccessRights>{right}</AccessRights>" for right in rights)
    return f'<AuthorizationRule i:type="{kind}"><Rights>{written}</Rights><KeyName>{name}</KeyName>{keys}</AuthorizationRule>'


def authorization_rules(*rules: str) -> str:
    return f"<AuthorizationRules>{''.join(rules)}</AuthorizationRules>"
