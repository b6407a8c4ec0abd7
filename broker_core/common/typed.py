"""A value with its wire type, for wire types that have no Python equivalent.

`Typed("ubyte", 7)` is the integer 7 with the type ubyte: it compares, adds, hashes, formats and serialises as 7.
Numbers, text and bytes are instances of subclasses of int, float, Decimal, str and bytes; any other value is wrapped.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any


class Typed:
    """Typed("ubyte", 7). type: the wire type's name. value: the plain value.

    Typed numbers of different types are equal if their values are, as 1 == 1.0 in Python; compare `type` where it matters.
    """

    type: str
    value: Any

    def __new__(cls, type: str, value: Any) -> Typed:
        base = next((base for base in _READ_AS if isinstance(value, base) and not isinstance(value, bool)), None)
        instance = object.__new__(_Wrapped) if base is None else base.__new__(_READ_AS[base], value)
        instance.__dict__.update(type=type, value=value if base is None else base(value))
        return instance

    def __repr__(self) -> str:
        return f"Typed({self.type!r}, {self.value!r})"

    def __str__(self) -> str:
        return str(self.value)

    def __reduce__(self) -> tuple:
        return Typed, (self.type, self.value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Typed value cannot be changed: {name}")


class _Wrapped(Typed):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wrapped) and (self.type, self.value) == (other.type, other.value)

    def __hash__(self) -> int:
        return hash((self.type, self.value))


class _Integer(Typed, int):
    pass


class _Float(Typed, float):
    pass


class _Decimal(Typed, Decimal):
    pass


class _Text(Typed, str):
    pass


class _Bytes(Typed, bytes):
    pass


_READ_AS: dict[Any, Any] = {int: _Integer, float: _Float, Decimal: _Decimal, str: _Text, bytes: _Bytes}
