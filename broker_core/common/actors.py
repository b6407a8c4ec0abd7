"""Actors as events, locks and audit records store them: one identity, however it is spelled. Pure.

"kind:name" is an actor. The lock of a key, which is a shared-access policy or a storage account, also says by which protocol the
key was used, and by which client: "http:name@client"; in older history, "key:name@client". Generated history begins with
"generated:". A text without a known kind is a name that a client gave itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .types import ACTOR_KINDS

GENERATED = "generated"
PROTOCOLS = ("http", "amqp")  # by which keys are used


@dataclass(frozen=True, slots=True)
class StoredActor:
    """kind: one of ACTOR_KINDS; empty: unknown. client: who used a key, and protocol: one of PROTOCOLS, if that is known."""

    kind: str
    name: str
    client: str = ""
    protocol: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind else self.name


def parsed(text: str) -> StoredActor:
    """The actor that a stored text names."""
    text = text.removeprefix(f"{GENERATED}:")
    kind, _, name = text.partition(":")
    key, _, client = name.partition("@")
    if key and client and kind in (*PROTOCOLS, "key"):
        return StoredActor("key", key, client, kind.replace("key", ""))
    return StoredActor(kind, name) if name and kind in ACTOR_KINDS else StoredActor("", text)


def key_holder(protocol: str, name: str, client: str) -> str:
    """What a lock stores of a client that uses a key. protocol: one of PROTOCOLS. name: of the policy or account."""
    return f"{protocol}:{name}@{client}"


def actor_name(text: str) -> str:
    """The name alone."""
    return parsed(text).name


def spellings(actor: str) -> tuple[list[str], list[str]]:
    """How an actor may be stored: these texts, and texts that begin so. actor: "process:web-1", or "web-1" for any kind."""
    stored = parsed(actor)
    texts = [str(stored)] if stored.kind else [actor, *(f"{kind}:{actor}" for kind in ACTOR_KINDS)]
    keys = [f"{used}:{stored.name}@" for used in ("key", *PROTOCOLS)] if stored.kind in ("", "key") else []
    return [*texts, *(f"{GENERATED}:{text}" for text in texts)], keys
