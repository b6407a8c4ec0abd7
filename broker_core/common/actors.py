"""Actors as events, locks and audit records store them: one identity, however it is spelled. Pure.

"kind:name" is an actor. A key's lock also names the client that used the key, as "key:name@client". Generated history begins with
"generated:". A text without a known kind is a name that a client gave itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .types import ACTOR_KINDS

GENERATED = "generated"


@dataclass(frozen=True, slots=True)
class StoredActor:
    """kind: one of ACTOR_KINDS; empty: unknown. client: who used a key, if that is known."""

    kind: str
    name: str
    client: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind else self.name


def parsed(text: str) -> StoredActor:
    """The actor that a stored text names."""
    text = text.removeprefix(f"{GENERATED}:")
    kind, _, name = text.partition(":")
    if not name or kind not in ACTOR_KINDS:
        return StoredActor("", text)
    if kind == "key" and name.partition("@")[0]:
        name, _, client = name.partition("@")
        return StoredActor(kind, name, client)
    return StoredActor(kind, name)


def actor_name(text: str) -> str:
    """The name alone."""
    return parsed(text).name


def spellings(actor: str) -> tuple[list[str], list[str]]:
    """How an actor may be stored: these texts, and texts that begin so. actor: "process:web-1", or "web-1" for any kind."""
    stored = parsed(actor)
    texts = [str(stored)] if stored.kind else [actor, *(f"{kind}:{actor}" for kind in ACTOR_KINDS)]
    keys = [f"key:{stored.name}@"] if stored.kind in ("", "key") else []
    return [*texts, *(f"{GENERATED}:{text}" for text in texts)], keys
