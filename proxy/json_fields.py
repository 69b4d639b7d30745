"""Typed reads from a decoded JSON object: the value, None where absent, or a `BadRequest` that names the field."""

from __future__ import annotations

from typing import Any

import msgspec

from weir.proxy.errors import BadRequest


def required(fields: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """A field that must be there."""
    value = optional(fields, name, kind)
    if value is None:
        raise BadRequest(f"you must provide {name}.", param=name, code="missing_required_parameter")
    return value


def optional(fields: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """A field that may be absent."""
    value = fields.get(name)
    if value is not None and type(value) is not kind:
        raise BadRequest(f"{name} must be {KINDS[kind]}, not {kind_of(value)}.", param=name, code="invalid_type")
    return value


def required_field(item: dict[str, Any], name: str, kind: type[Any], where: str) -> Any:
    """A field that must be there, of the nested object that `where` names."""
    value = item.get(name)
    if type(value) is not kind:
        raise BadRequest(
            f"{where}.{name} must be {KINDS[kind]}, not {kind_of(value)}.", param=f"{where}.{name}", code="invalid_type"
        )
    return value


def integer(fields: dict[str, Any], name: str, *, low: int, high: int = 2**31 - 1) -> int | None:
    """A whole number within bounds."""
    value: int | None = optional(fields, name, int)
    if value is not None and not low <= value <= high:
        raise BadRequest(
            f"{name} = {value} is out of range; it must be {low} to {high}.", param=name, code="invalid_value"
        )
    return value


def number(fields: dict[str, Any], name: str, low: float, high: float) -> float | None:
    """A number within bounds."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise BadRequest(f"{name} must be a number, not {kind_of(value)}.", param=name, code="invalid_type")
    if not low <= value <= high:
        raise BadRequest(
            f"{name} = {value} is out of range; it must be {low:g} to {high:g}.", param=name, code="invalid_value"
        )
    return float(value)


KINDS: dict[type[Any], str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    dict: "an object",
    list: "a list",
}


def kind_of(value: Any) -> str:
    """What a value is, in words for the agent."""
    return "null" if value is None else KINDS.get(type(value), "a number")


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."
