"""How names stand in addresses of pages: a virtual host may be called "/" or "a/b", a queue "..", which browsers would resolve.

`<namespace:namespace>` and `<entity:path>` in a URL pattern read and write them. Importing this module registers both.
"""

from __future__ import annotations

import re

from django.urls import register_converter

ENTITY = "<namespace:namespace>/<entity:path>"
_ESCAPED = {"~": "~7E", "/": "~2F", ".": "~2E"}
_ESCAPES = {escape: character for character, escape in _ESCAPED.items()}
_ESCAPE = re.compile("|".join(_ESCAPES), re.IGNORECASE)


def read(text: str) -> str:
    """The name behind a part of an address. A ~ that begins no escape stands for itself, so that people may type it."""
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0].upper()], text)


def _dots(segment: str) -> str:
    """A segment that is nothing but one dot or two means another folder to a browser."""
    return segment.replace(".", _ESCAPED["."]) if segment in (".", "..") else segment


class NamespaceConverter:
    """The name of a namespace, storage account or virtual host, as one segment."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return read(value)

    def to_url(self, value: str) -> str:
        return _dots(re.sub("[~/]", lambda found: _ESCAPED[found[0]], value))


class EntityConverter:
    """An entity's path, whose slashes stay slashes."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return read(value)

    def to_url(self, value: str) -> str:
        return "/".join(_dots(segment) for segment in value.replace("~", _ESCAPED["~"]).split("/"))


register_converter(NamespaceConverter, "namespace")
register_converter(EntityConverter, "entity")
