"""Tools of a Responses body: functions, namespaces of functions, custom tools, and tools that the host would run.

The model sees a function of a namespace as `<namespace>__<name>`. In the items of an answer and of the next request the
two names are apart, as the API has them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from weir.proxy.conversation.call_request import HostedTool, Tool
from weir.proxy.dialects import custom_tools
from weir.proxy.dialects.body import optional, required_field
from weir.proxy.errors import BadRequest

READ_IN_TOOLS = frozenset({"type", "name", "description", "parameters", "strict"})
READ_IN_NAMESPACES = frozenset({"type", "name", "description", "tools"})
JOINT = "__"
CUSTOM_CALL = "custom_tool_call"


class DeclaredTools(NamedTuple):
    """The tools of a body: functions in the chat form (None without any), and what is not the model's to know."""

    functions: list[Tool] | None
    hosted: tuple[HostedTool, ...]
    ignored_fields: tuple[str, ...]


def tools_in(fields: dict[str, Any]) -> DeclaredTools:
    """Read the tools. Raises `BadRequest`."""
    tools: dict[str, Tool] = {}
    kinds: dict[str, str] = {}
    hosted: list[HostedTool] = []
    ignored_fields: list[str] = []
    for i, item in enumerate(optional(fields, "tools", list) or []):
        where = f"tools[{i}]"
        kind = _type_of(item, where)
        functions: Iterable[dict[str, Any]] = ()
        if kind == "custom":
            stand_in, ignored = custom_tools.function_of(item, where)
            functions = [stand_in]
            ignored_fields += ignored
        elif kind == "namespace":
            functions = _members(item, where)
        elif kind == "function":
            functions = [_function(item, where)]
        else:
            hosted.append(HostedTool(where, kind))
        for function in functions:
            name = function["name"]
            if name in tools and not kind == kinds[name] == "function":  # of two plain functions the last one counts
                raise BadRequest(f"{where} has a second tool that the model would know as {name!r:.200}.", param=where)
            tools[name] = {"type": "function", "function": function}
            kinds[name] = kind
    return DeclaredTools(list(tools.values()) or None, tuple(hosted), tuple(ignored_fields))


def joined(namespace: str | None, name: str) -> str:
    """A function's name as the model knows it."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith(JOINT) else namespace + JOINT + name


def call_fields(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """By the name that the model knows: fields of a call's item that are not those of a plain function.

    Those are `namespace` and `name`, and the type of custom tools. `tools` are those of a request that was checked.
    """
    named = {
        joined(item["name"], function["name"]): {"namespace": item["name"], "name": function["name"]}
        for item in tools
        if item["type"] == "namespace"
        for function in item["tools"]
    }
    return named | {item["name"]: {"type": CUSTOM_CALL} for item in tools if item["type"] == "custom"}


def _members(item: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """The functions of a namespace; the first one's description begins with the namespace's."""
    _refuse_others(item, READ_IN_NAMESPACES, where)
    namespace = required_field(item, "name", str, where)
    about = required_field(item, "description", str, where) if item.get("description") is not None else ""
    for i, member in enumerate(required_field(item, "tools", list, where)):
        inner = f"{where}.tools[{i}]"
        if (kind := _type_of(member, inner)) != "function":
            raise BadRequest(
                f"{inner}: a tool of type {kind!r:.80} is not supported in a namespace; only functions are.",
                param=inner,
                code="unsupported_parameter",
            )
        function = _function(member, inner)
        function["name"] = joined(namespace, function["name"])
        if about:
            function["description"] = f"{about}\n\n{function.get('description', '')}".rstrip()
            about = ""
        yield function


def _type_of(item: Any, where: str) -> str:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    return str(item["type"])


def _function(item: dict[str, Any], where: str) -> dict[str, Any]:
    _refuse_others(item, READ_IN_TOOLS, where)
    function = {"name": required_field(item, "name", str, where)}
    for name, kind in (("description", str), ("parameters", dict), ("strict", bool)):
        if item.get(name) is not None:
            function[name] = required_field(item, name, kind, where)
    return function


def _refuse_others(item: dict[str, Any], known: frozenset[str], where: str) -> None:
    for name, value in item.items():
        if name not in known and value not in (None, False):
            raise BadRequest(
                f"{where}.{name} is not supported here.", param=f"{where}.{name}", code="unsupported_parameter"
            )
