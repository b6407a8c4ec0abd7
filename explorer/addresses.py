"""URL converters for names that a URL path cannot contain as they are: a virtual host "/" or "a/b", a queue "..".

Importing this module registers `<namespace:namespace>` and `<entity:path>` for URL patterns.
"""

from __future__ import annotations

import re

from django.urls import register_converter

ENTITY = "<namespace:namespace>/<entity:path>"
_ESCAPED = {"~": "~7E", "/": "~2F", ".": "~2E"}
_ESCAPES = {escape: character for character, escape in _ESCAPED.items()}
_ESCAPE = re.compile("|".join(_ESCAPES), re.IGNORECASE)


def read(text: str) -> str:
    """Unescape a part of a URL path. A ~ that starts no escape is kept, so that users can type it."""
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0].upper()], text)


def _dots(segment: str) -> str:
    """Escape the segments "." and "..", which browsers would resolve."""
    return segment.replace(".", _ESCAPED["."]) if segment in (".", "..") else segment


class NamespaceConverter:
    """The name of a namespace, storage account or virtual host, as one segment."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return read(value)

    def to_url(self, value: str) -> str:
        return _dots(re.sub("[~/]", lambda found: _ESCAPED[found[0]], value))


class EntityConverter:
    """An entity's path; its slashes are not escaped."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return read(value)

    def to_url(self, value: str) -> str:
        return "/".join(_dots(segment) for segment in value.replace("~", _ESCAPED["~"]).split("/"))


register_converter(NamespaceConverter, "namespace")
register_converter(EntityConverter, "entity")
