"""Fields of a value that its topic's schema does not have, and what is said about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafkalake.close_names import did_you_mean
from kafkalake.config.value_schema import ValueType


def unknown_field(names: Iterable[str], known: Collection[str], prefix: str = "") -> str | None:
    """Return a sentence about the first name that is no known field, or None if all are. prefix: the path of the object."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is None:
        return None
    hint = did_you_mean(unknown, known) or f"there are {', '.join(known)}"
    return f"value.schema has no field {prefix}{unknown}; {hint}"


def unknown_field_of(value: object, kind: ValueType, where: str = "") -> str | None:
    """Return a sentence about the first field of a parsed JSON value that the type does not have, or None if it has all.

    A value that does not fit its type has no fields to look at. where: the field that the value is of.
    """
    if kind.name == "STRUCT" and isinstance(value, dict):
        types = {field.name: field.type for field in kind.fields}
        prefix = f"{where}." if where else ""
        said = unknown_field(value, types, prefix)
        parts = [] if said else [(part, types[name], prefix + name) for name, part in value.items()]
    elif kind.element is not None and isinstance(value, dict if kind.name == "MAP" else list):
        said, element = None, kind.element
        items = value.values() if isinstance(value, dict) else value
        parts = [(part, element, f"{where}[]") for part in items] if element.fields or element.element else []
    else:
        return None
    return said or next(filter(None, (unknown_field_of(*part) for part in parts)), None)
