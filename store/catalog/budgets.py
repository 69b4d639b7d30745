"""Budgets of sessions: the limits of each, and the use by its calls in all processes together.

Invariant: a charge is one statement that also checks the remainder, so that processes which charge at the same time
never admit a call too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.catalog.rows import BudgetRow
from weir.store.clock import now_us

_B = t.budgets.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A charge: calls that begin (`calls` above 0, refused where too little is left), or what an ended call used."""

    session_id: str
    calls: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """The budget after a charge, None where the session has none; `granted` is False where calls may not begin.

    `ended_by` is the limit that cut an answer or refused a call: "seconds", "output_tokens" or "calls".
    """

    granted: bool
    budget: BudgetRow | None


def find_budget(catalog: Catalog, session_id: str) -> BudgetRow | None:
    """The budget of a session, or None."""
    with catalog.reading().begin() as connection:
        return _find(connection, session_id)


def charge_budgets(catalog: Catalog, charges: Sequence[Charge]) -> list[Charged]:
    """Apply charges in order, in one transaction."""
    with catalog.writing(Area.BUDGETS).begin() as connection:
        return [_charge(connection, charge, now_us()) for charge in charges]


def _charge(connection: sa.Connection, charge: Charge, at_us: int) -> Charged:
    begins = charge.calls > 0
    values = {"calls": _B.calls + charge.calls, "output_tokens": _B.output_tokens + charge.output_tokens}
    if begins:
        values["first_call_us"] = sa.func.coalesce(_B.first_call_us, at_us)
    update = t.budgets.update().where(_B.session_id == charge.session_id)
    allowed = update.where(_has_left(charge.calls, at_us)) if begins else update
    granted = connection.execute(allowed.values(values))
    budget = _find(connection, charge.session_id)
    if budget is None or (begins and granted.rowcount > 0):
        return Charged(granted=True, budget=budget)
    ended_by = _used_up(budget, at_us) or ("calls" if begins else None)
    if budget.ended_by is None and ended_by is not None:
        connection.execute(update.values(ended_by=ended_by))
        budget = replace(budget, ended_by=ended_by)
    return Charged(granted=not begins, budget=budget)


def _used_up(budget: BudgetRow, at_us: int) -> str | None:
    first_us = budget.first_call_us
    if budget.max_seconds is not None and first_us is not None and at_us >= first_us + budget.max_seconds * 1e6:
        return "seconds"
    if budget.max_output_tokens is not None and budget.output_tokens >= budget.max_output_tokens:
        return "output_tokens"
    return None


def _has_left(calls: int, at_us: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        sa.or_(_B.max_calls.is_(None), _B.calls + calls <= _B.max_calls),
        sa.or_(_B.max_output_tokens.is_(None), _B.output_tokens < _B.max_output_tokens),
        sa.or_(
            _B.max_seconds.is_(None), _B.first_call_us.is_(None), at_us < _B.first_call_us + _B.max_seconds * 1_000_000
        ),
    )


def _find(connection: sa.Connection, session_id: str) -> BudgetRow | None:
    row = connection.execute(sa.select(t.budgets).where(_B.session_id == session_id)).first()
    return None if row is None else BudgetRow(**row._mapping)
