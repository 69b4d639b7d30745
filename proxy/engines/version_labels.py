"""The label of a weight version in a record, and what to say of engines that do not name theirs by an integer.

Only integers can be ordered, so calls with another label are never trained on. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from weir.store.records.call_record import ASSUMED

UNKNOWN_VERSION = "unknown"


def version_label(reported: str | int | None, assumed: int | None) -> str:
    """The label of weights that an engine named so; the assumed version where that is no integer, marked as assumed."""
    if assumed is None or is_number(reported):
        return UNKNOWN_VERSION if reported is None else str(reported)
    return f"{ASSUMED}{assumed}"


def is_number(reported: str | int | None) -> bool:
    """Whether a reported version is an integer that can be trained on."""
    return reported is not None and str(reported).isdecimal() and int(reported) < 2**31


def remark_on_versions(reported: Iterable[str | int | None], assumed: int | None) -> str | None:
    """What to tell a person about engines whose version is no integer, and what to do; None where all are."""
    names = sorted({str(version) for version in reported if version is not None and not is_number(version)})
    if not names:
        return None
    named = ", ".join(map(repr, names))
    if assumed is not None:
        return f"the engines name their weights {named}, recorded as assumed version {assumed} (proxy.assumed_version)"
    return (
        f"the engines name their weights {named}, which is not an integer: no round can train on their calls; start "
        "SGLang with --weight-version 0, publish a version to them, or set proxy.assumed_version"
    )
