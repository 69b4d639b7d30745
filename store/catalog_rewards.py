"""Rewards as they are read: those of some sessions by name, the oldest first. How they are written is in catalog.py."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from weir.store import catalog_schema as t
from weir.store.catalog import SQL_VARIABLES, Catalog
from weir.store.catalog_rows import RewardRow


def rewards_of(catalog: Catalog, session_ids: Sequence[str], names: Sequence[str]) -> list[RewardRow]:
    """The rewards of these names that sessions, or calls of theirs, have."""
    columns = [t.rewards.c[name] for name in RewardRow.__dataclass_fields__]
    found: list[RewardRow] = []
    with catalog.reading().begin() as connection:
        for start in range(0, len(session_ids), SQL_VARIABLES):
            chosen = t.rewards.c.session_id.in_(session_ids[start : start + SQL_VARIABLES])
            query = sa.select(*columns).where(chosen, t.rewards.c.name.in_(names))
            ordered = query.order_by(t.rewards.c.created_us, t.rewards.c.idempotency_key)
            found += [RewardRow(**row._mapping) for row in connection.execute(ordered)]
    return found
