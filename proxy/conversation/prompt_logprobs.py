"""Which prompt tokens of a call are recorded with their logprobs: a header of the request, or a setting."""

from __future__ import annotations

from collections.abc import Mapping

from weir.proxy.errors import BadRequest

HEADER = "x-weir-prompt-logprobs"


def first_position(headers: Mapping[str, str], *, always: bool) -> int | None:
    """The first position of the prompt whose logprob is wanted; None: of none. Raises `BadRequest`.

    Nothing precedes the token at position 0, so that it has no logprob, and 0 means 1.
    """
    asked = headers.get(HEADER)
    if asked is None:
        return 1 if always else None
    if not asked.isdecimal() or len(asked) > 9:
        raise BadRequest(
            f"the header {HEADER} = {asked!r:.40} must be the position of the first prompt token whose logprob is "
            "wanted, such as 0",
            param=HEADER,
        )
    return max(int(asked), 1)


def refuse(headers: Mapping[str, str]) -> None:
    """Raise `BadRequest` for a request that asks for prompt logprobs where the proxy does not make the prompt."""
    if HEADER in headers:
        raise BadRequest(
            f"{HEADER} needs a proxy at capture level tokens; this one relays requests to an engine that makes the "
            "prompt",
            param=HEADER,
        )
