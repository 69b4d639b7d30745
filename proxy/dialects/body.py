"""Reading of request bodies, as all dialects share it: typed fields, unknown fields, sampling, the agent's identifiers.

A field that is absent or null is None. Pure. Invariant: no input makes a function here raise anything but `BadRequest`,
which names the field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import Sampling, TokenLogprob
from weir.proxy.errors import BadRequest


def required(fields: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """The value of a field that must be present. Raises `BadRequest`."""
    value = optional(fields, name, kind)
    if value is None:
        raise BadRequest(f"you must provide {name}.", param=name, code="missing_required_parameter")
    return value


def optional(fields: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """The value of a field; None where it is absent. Raises `BadRequest` for another type."""
    value = fields.get(name)
    if value is not None and type(value) is not kind:
        raise BadRequest(f"{name} must be {KINDS[kind]}, not {kind_of(value)}.", param=name, code="invalid_type")
    return value


def session_hint(fields: dict[str, Any]) -> str | None:
    """The session that a body names: `metadata.session_id`, else the user. Raises `BadRequest`."""
    named = (optional(fields, "metadata", dict) or {}).get("session_id")
    if isinstance(named, str):
        return named
    user: str | None = optional(fields, "user", str)
    return user


def required_field(item: dict[str, Any], name: str, kind: type[Any], where: str) -> Any:
    """A field that must be present in the nested object whose path is `where`. Raises `BadRequest`."""
    value = item.get(name)
    if type(value) is not kind:
        raise BadRequest(
            f"{where}.{name} must be {KINDS[kind]}, not {kind_of(value)}.", param=f"{where}.{name}", code="invalid_type"
        )
    return value


def integer(fields: dict[str, Any], name: str, *, low: int, high: int = 2**31 - 1) -> int | None:
    """An integer from `low` to `high`; None where it is absent. Raises `BadRequest`."""
    value: int | None = optional(fields, name, int)
    if value is not None and not low <= value <= high:
        raise BadRequest(
            f"{name} = {value} is out of range; it must be {low} to {high}.", param=name, code="invalid_value"
        )
    return value


def number(fields: dict[str, Any], name: str, low: float, high: float) -> float | None:
    """A number from `low` to `high`; None where it is absent. Raises `BadRequest`."""
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
    """The JSON type of a value, in words for error messages."""
    return "null" if value is None else KINDS.get(type(value), "a number")


def shown(value: Any) -> str:
    """A value as JSON for error messages, cut to 80 characters."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."


IMAGE = "[An image was here. This model reads text only.]"  # what a model sees of one

MAX_STOPS = 16
MAX_TOP = 20  # OpenAI's
ENGINE_SAMPLING = frozenset(
    {"top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty", "ignore_eos"}
)

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def decoded(body: bytes) -> dict[str, Any]:
    """The members of a body that are not null. Raises `BadRequest`."""
    fields = value_of(body)
    if not isinstance(fields, dict):
        raise BadRequest(f"The body must be a JSON object, not {kind_of(fields)}.")
    return {name: value for name, value in fields.items() if value is not None}


def decoded_but(name: str, body: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The members of a body without `name`, and that member's raw JSON (None where absent). Raises `BadRequest`."""
    try:
        parts = _decode_parts(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parts = {key: msgspec.Raw(_encode(value)) for key, value in decoded(body).items()}  # raises with the reason
    raw = parts.pop(name, None)
    fields = {key: value_of(part) for key, part in parts.items()}
    return {key: value for key, value in fields.items() if value is not None}, None if raw is None else bytes(raw)


def value_of(raw: bytes | msgspec.Raw) -> Any:
    """The value of a body or of a part of one. Raises `BadRequest`."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {error or 'nested too deeply'}", code="invalid_json") from error


def refuse_unknown(fields: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Raise `BadRequest` for the first field that is not `known`; `where` is the path of the object."""
    for name in fields:
        if name not in known:
            path = f"{where}.{name}" if where else name
            raise BadRequest(
                f"Unrecognized or unsupported field: {path:.200}. Leave it out; it would be ignored otherwise.",
                param=path,
                code="unsupported_parameter",
            )


def refuse_values(fields: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise `BadRequest` for a field whose value is not one of its `neutral` ones, which change nothing."""
    for name, allowed in neutral.items():
        if name in fields and not any(type(fields[name]) is type(v) and fields[name] == v for v in allowed):
            raise unsupported(name, fields[name], *allowed)


def unsupported(where: str, value: Any, *instead: Any) -> BadRequest:
    """The error for a value that is well formed and not supported; `instead` lists values that are."""
    choices = " or ".join(shown(item) for item in instead)
    advice = f"leave it out or send {choices}" if instead else "leave it out"
    return BadRequest(
        f"{where} = {shown(value)} is not supported here; {advice}.", param=where, code="unsupported_parameter"
    )


def sampling_in(
    fields: dict[str, Any], *, max_tokens: int | None, stop: tuple[str, ...], extra: Mapping[str, Any]
) -> Sampling:
    """The sampling parameters: fields with the same name in all dialects, and those that the dialect read itself.

    Raises `BadRequest`.
    """
    temperature = number(fields, "temperature", 0.0, 2.0)
    top_p = number(fields, "top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise BadRequest("top_p must be above 0.", param="top_p", code="invalid_value")
    return Sampling(
        max_tokens=max_tokens,
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=integer(fields, "top_k", low=-1) or -1,
        seed=integer(fields, "seed", low=-(2**63), high=2**63 - 1),
        stop=stop,
        extra=_penalties(fields) | dict(extra),
    )


def bias_in(fields: dict[str, Any]) -> dict[str, Any]:
    """`logit_bias` as the engine's sampling parameter; nothing where it changes nothing. Raises `BadRequest`."""
    bias = {}
    for token, value in (optional(fields, "logit_bias", dict) or {}).items():
        if not token.isdecimal() or not token.isascii() or not int(token[:11]) < 2**31:
            raise BadRequest(
                f"logit_bias must have token ids as its keys, not {shown(token)}.",
                param="logit_bias",
                code="invalid_value",
            )
        where = f"logit_bias.{int(token)}"
        added = number({where: value}, where, -100.0, 100.0)
        if added is None:
            raise BadRequest(f"{where} must be a number, not null.", param=where, code="invalid_type")
        bias[str(int(token))] = added
    return {"logit_bias": bias} if any(bias.values()) else {}


def top_in(fields: dict[str, Any], name: str) -> int:
    """How many of the likeliest tokens are wanted at each position: 0 to `MAX_TOP`. Raises `BadRequest`."""
    return integer(fields, name, low=0, high=MAX_TOP) or 0


def likeliest(token: TokenLogprob) -> list[dict[str, Any]]:
    """The likeliest tokens of a position, in OpenAI's form."""
    return [{"token": text, "logprob": logprob, "bytes": list(text.encode())} for text, logprob in token.top]


def stops_in(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Stop strings: one, or a list of them. Raises `BadRequest`."""
    given = fields.get(name, [])
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(item, str) and item for item in stops):
        raise BadRequest(f"{name} must be a list of non-empty strings.", param=name, code="invalid_value")
    if len(stops) > MAX_STOPS:
        raise BadRequest(f"{name} has {len(stops)} strings; at most {MAX_STOPS} are allowed.", param=name)
    return tuple(stops)


def schema_text(schema: dict[str, Any]) -> str:
    """A JSON schema as text, the form that engines take."""
    return _encode(schema).decode()


def names_in(fields: dict[str, Any], *names: str) -> dict[str, str]:
    """The agent's identifiers: every string in `metadata`, and the fields `names`. Raises `BadRequest`."""
    metadata = optional(fields, "metadata", dict) or {}
    ids = {f"metadata.{name}": value for name, value in metadata.items() if isinstance(value, str)}
    for name in names:
        value = optional(fields, name, str)
        if value is not None:
            ids[name] = value
    return ids


def _penalties(fields: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    for name, low, high, nothing in (
        ("frequency_penalty", -2.0, 2.0, 0.0),
        ("presence_penalty", -2.0, 2.0, 0.0),
        ("min_p", 0.0, 1.0, 0.0),
        ("repetition_penalty", 0.01, 2.0, 1.0),
    ):
        value = number(fields, name, low, high)
        if value is not None and value != nothing:
            extra[name] = value
    if optional(fields, "ignore_eos", bool):
        extra["ignore_eos"] = True
    return extra
