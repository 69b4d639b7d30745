"""Every action by its kind: planned by one function, done under one row of the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weir.store.catalog.audit.actions import Asked, begin_action, end_action
from weir.store.catalog.catalog import Catalog
from weir.store.errors import StoreError
from weir.ui.control.exports import plan_export
from weir.ui.control.pins import plan_pin, plan_unpin
from weir.ui.control.plan import Given, Plan, View
from weir.ui.control.rewards import plan_reward
from weir.ui.control.weights import plan_publish, plan_rollback
from weir.ui.errors import NotFound, UiError

PLANS: dict[str, Callable[[View, Given], Plan]] = {
    "reward": plan_reward,
    "pin": plan_pin,
    "unpin": plan_unpin,
    "export": plan_export,
    "publish": plan_publish,
    "rollback": plan_rollback,
}
ROUND = "round"  # planned by a command, see weights.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Who asks for an action."""

    person: str
    address: str


def plan_action(view: View, kind: str, given: Given) -> Plan:
    """What an action would do. Raises NotFound and BadQuestion."""
    if kind not in PLANS:
        raise NotFound(f"there is no action {kind!r}: choose one of {', '.join((*PLANS, ROUND))}")
    return PLANS[kind](view, given)


def begin(catalog: Catalog, plan: Plan, kind: str, action_id: str, note: str, who: Who) -> bool:
    """Write an action into the audit before it is done; False where it was begun before."""
    asked = Asked(
        action_id=action_id,
        kind=kind,
        subject=plan.subject,
        given=dict(plan.given),
        note=note,
        person=who.person,
        address=who.address,
    )
    return begin_action(catalog, asked)


def perform(catalog: Catalog, plan: Plan, action_id: str, who: Who) -> None:
    """Do what was planned and begun. A failure is in the audit, and is raised."""
    assert plan.perform is not None, "a command does it"
    try:
        message = plan.perform(action_id, who.person)
    except (StoreError, UiError) as error:
        end_action(catalog, action_id, done=False, message=str(error))
        raise
    except BaseException as error:
        end_action(catalog, action_id, done=False, message=f"{type(error).__name__}: {error}")
        raise
    end_action(catalog, action_id, done=True, message=message)
