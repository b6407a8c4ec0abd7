"""What a client needs to connect, as one text, for the clients of each family (FamilyDefinition.connection_strings)."""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN = "<key>"  # instead of a key
NOT_YET = "not served yet"
SITE = "site"  # the name of the one that needs no listener


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """name: a word that names it in commands. client: whose it is, "Azure Queue Storage SDKs". at: the host and port in it.
    why_not: why nobody can use it now, "not served yet"; empty: it works."""

    name: str
    client: str
    text: str
    at: str
    why_not: str = ""

    @property
    def is_for_listener(self) -> bool:
        """Whether it names a port of the listener, and not the site."""
        return self.name != SITE

    @property
    def port(self) -> int:
        return int(self.at.rpartition(":")[2])
