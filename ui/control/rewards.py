"""A person's reward of a session or of one of its calls: what rounds read as a `stored` reward."""

from __future__ import annotations

import math

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rewards import rewards_of
from weir.store.catalog.rows import RewardRow
from weir.ui.control.plan import Given, Plan, View
from weir.ui.data.rows import Row, rows
from weir.ui.errors import BadQuestion, NotFound

NAME_CHARACTERS = 200

_SESSION = "SELECT session_id, group_id, task_id, status, source FROM session_rows WHERE session_id = $session"
_CALL = "SELECT count(*) AS found FROM stored.calls WHERE session_id = $session AND call_id = $call"
_ROUND = """
SELECT round_id, state FROM stored.round_groups JOIN stored.rounds USING (round_id) WHERE group_id = $group
"""


def plan_reward(view: View, given: Given) -> Plan:
    """A number under a name for a session or one call of it. Raises NotFound and BadQuestion."""
    session = _session(view, given.get("session", ""))
    name, value = _name(given), _value(given)
    call_id = _call(view, session["session_id"], given.get("call", ""))
    catalog = view.catalog

    def perform(action_id: str, person: str) -> str:
        _register(catalog, session)
        row = RewardRow(
            session_id=session["session_id"],
            call_id=call_id,
            name=name,
            value=value,
            source=f"page: {person}" if person else "page",
            idempotency_key=action_id,
        )
        (is_new,) = catalog.add_rewards([row])
        return f"{name} = {value:g} is stored" if is_new else f"{name} = {value:g} was stored before"

    what = f"call {call_id} of session {session['session_id']}" if call_id else f"session {session['session_id']}"
    return Plan(
        subject=session["session_id"],
        title=f"Reward {name} = {value:g}",
        effects=(f"{what} gets the reward {name} = {value:g}.", *_effects(view, session, call_id, name)),
        button="Store this reward",
        given={"session": session["session_id"], "call": call_id or "", "name": name, "value": repr(value)},
        perform=perform,
    )


def _effects(view: View, session: Row, call_id: str | None, name: str) -> list[str]:
    effects = ["It has no reward of this name yet."]
    stored = rewards_of(view.catalog, [session["session_id"]], [name])  # also what the page's view does not have yet
    for row in [row for row in stored if row.call_id == call_id][-1:]:
        by = f", from {row.source}" if row.source else ""
        effects = [f"It has {name} = {row.value:g} now{by}; both stay, and the latest one counts."]
    taken = rows(view.cursor, _ROUND, {"group": session["group_id"]})
    if taken:
        effects.append(
            f"Round {taken[0]['round_id']} has taken its group {session['group_id']}: its training does not change."
        )
    else:
        effects.append(
            f"No round has taken its group {session['group_id']} yet. One that does will use the reward where "
            f"[trainer.reward_terms] has {name} = {{ stored = true }}."
        )
    if view.catalog.find_session(session["session_id"]) is None:
        effects.append("The session only had calls: it is registered first.")
    return effects


def _session(view: View, session_id: str) -> Row:
    found = rows(view.cursor, _SESSION, {"session": session_id})
    if not found:
        raise NotFound(f"there is no session {session_id!r} to reward in this view of the store")
    return found[0]


def _name(given: Given) -> str:
    name = given.get("name", "").strip()
    if not name or len(name) > NAME_CHARACTERS or not name.isprintable():
        raise BadQuestion(f"name = {name!r:.220}: a reward has a name of 1 to {NAME_CHARACTERS} printable characters")
    return name


def _value(given: Given) -> float:
    text = given.get("value", "")
    try:
        value = float(text)
    except ValueError as error:
        raise BadQuestion(f"value = {text!r:.100}: give a number, for example 1 or -0.5") from error
    if not math.isfinite(value):
        raise BadQuestion(f"value = {text!r:.100}: give a finite number, for example 1 or -0.5")
    return value


def _call(view: View, session_id: str, call_id: str) -> str | None:
    if not call_id:
        return None
    if not rows(view.cursor, _CALL, {"session": session_id, "call": call_id})[0]["found"]:
        raise NotFound(f"session {session_id!r} has no call {call_id!r} in this view of the store")
    return call_id


def _register(catalog: Catalog, session: Row) -> None:
    """Register a session that only had calls, as the proxy does before it takes a reward."""
    if catalog.find_session(session["session_id"]) is None:
        catalog.register_session(
            session["session_id"], session["group_id"], task=None, group_size=None, metadata={}, key_hash=None
        )
