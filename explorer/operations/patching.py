"""Repairs bodies: a new body, a JSON merge patch (RFC 7396), or a replaced text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument


def check_patch(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument unless the options of a repair say what is to be changed."""
    patch, body, properties = options.get("merge_patch"), options.get("body"), options.get("properties")
    replace = options.get("replace")
    if replace is not None and not (isinstance(replace, list) and len(replace) == 2 and replace[0]):
        raise InvalidArgument("find", "is empty: enter the text to be replaced")
    if patch is None and body is None and replace is None and not properties:
        raise InvalidArgument("merge_patch", 'is empty: say what to change, as a JSON object such as {"currency": "EUR"}')
    if patch is not None and not isinstance(patch, dict):
        raise InvalidArgument("merge_patch", "must be a JSON object; its members are set, and those that are null are removed")
    if body is not None and not isinstance(body, str):
        raise InvalidArgument("body", "must be text")


def merged(target: Any, patch: Any) -> Any:
    """The target with a JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def patched(body: bytes, options: Mapping[str, Any]) -> bytes:
    """The repaired body. Raises ValueError with the reason why it cannot be repaired."""
    if options.get("body") is not None:
        return options["body"].encode()
    if options.get("replace") is not None:
        return _replaced(body, *options["replace"])
    if options.get("merge_patch") is None:
        return body
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("its body is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("its body is not a JSON object")
    try:
        return json.dumps(merged(value, options["merge_patch"]), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ValueError("its body cannot be written as JSON again") from None


def _replaced(body: bytes, find: str, by: str) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("its body is not text in UTF-8") from None
    if find not in text:
        raise ValueError("its body does not contain the text")
    return text.replace(find, by).encode()
