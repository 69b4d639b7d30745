"""Groups that retention must keep: pinned by a person, or no longer."""

from __future__ import annotations

from weir.store.catalog.pins import acknowledge, pin_groups, pins
from weir.ui.control.plan import Given, Plan, View
from weir.ui.data.rows import rows
from weir.ui.errors import BadQuestion, NotFound

PREFIX = "page: "  # of the names of pins that people made here

_GROUP = """
SELECT count(*) AS sessions, coalesce(sum(num_calls), 0)::BIGINT AS calls FROM session_rows WHERE group_id = $group
"""


def plan_pin(view: View, given: Given) -> Plan:
    """Keep a group. Raises NotFound, and BadQuestion where a person has pinned it already."""
    group_id = given.get("group", "")
    found = rows(view.cursor, _GROUP, {"group": group_id})[0]
    if not found["sessions"]:
        raise NotFound(f"there is no group {group_id!r} in this view of the store")
    name = f"{PREFIX}{group_id}"
    if any(pin.name == name for pin in pins(view.catalog)):
        raise BadQuestion(f"group {group_id!r} is pinned already: the page of actions lists it, and can unpin it")

    catalog, taken_us = view.catalog, view.taken_us

    def perform(action_id: str, person: str) -> str:
        pin_groups(catalog, name, [group_id], read_us=taken_us)
        return f"group {group_id} is pinned"

    return Plan(
        subject=group_id,
        title=f"Pin group {group_id}",
        effects=(
            f"The {found['sessions']:,} sessions of group {group_id}, {found['calls']:,} calls, stay in the store "
            "whatever their age and the store's size, until somebody unpins them.",
            "Rounds take the group as before.",
        ),
        button="Pin it",
        given={"group": group_id},
        perform=perform,
    )


def plan_unpin(view: View, given: Given) -> Plan:
    """End a pin. Raises NotFound."""
    name = given.get("pin", "")
    found = next((pin for pin in pins(view.catalog) if pin.name == name), None)
    if found is None:
        raise NotFound(f"there is no pin {name!r}; the page of actions lists them")

    catalog = view.catalog

    def perform(action_id: str, person: str) -> str:
        return f"{name} is unpinned" if acknowledge(catalog, name) else f"{name} had been unpinned before"

    effects = [f"Retention may remove its {found.num_groups:,} groups again, by the store's limits of age and size."]
    if not name.startswith(PREFIX):
        effects.append(
            f"{found.holder} made this pin and may still need it: a consumer ends its pin itself, and one that was "
            "killed takes it over when it is run again."
        )
    return Plan(
        subject=name,
        title=f"Unpin {name}",
        effects=tuple(effects),
        button="Unpin it",
        given={"pin": name},
        perform=perform,
    )
