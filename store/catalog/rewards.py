"""Reads rewards and evaluations. `Catalog` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import SQL_VARIABLES, Catalog
from weir.store.catalog.rows import EvaluationRow, RewardRow


def rewards_of(catalog: Catalog, session_ids: Sequence[str], names: Sequence[str]) -> list[RewardRow]:
    """The rewards with these names of the sessions and their calls, oldest first."""
    columns = [t.rewards.c[name] for name in RewardRow.__dataclass_fields__]
    found: list[RewardRow] = []
    with catalog.reading().begin() as connection:
        for start in range(0, len(session_ids), SQL_VARIABLES):
            chosen = t.rewards.c.session_id.in_(session_ids[start : start + SQL_VARIABLES])
            query = sa.select(*columns).where(chosen, t.rewards.c.name.in_(names))
            ordered = query.order_by(t.rewards.c.created_us, t.rewards.c.idempotency_key)
            found += [RewardRow(**row._mapping) for row in connection.execute(ordered)]
    return found


def evaluations_of(catalog: Catalog, wanted: Mapping[str, str]) -> dict[str, EvaluationRow]:
    """Each call's evaluation with the wanted content hash (`wanted`: call → hash); calls without one are missing."""
    ids = list(wanted)
    found: dict[str, EvaluationRow] = {}
    with catalog.reading().begin() as connection:
        for start in range(0, len(ids), SQL_VARIABLES):
            chosen = t.evaluations.c.call_id.in_(ids[start : start + SQL_VARIABLES])
            for row in connection.execute(sa.select(t.evaluations).where(chosen)):
                if row.content_hash == wanted[row.call_id]:
                    found[row.call_id] = EvaluationRow(**row._mapping)
    return found
