"""Devices that engines and training take in turns: which engines hold no memory now, and what each change cost.

Invariants: an engine has a row from before it is asked to give its memory back until it serves again, so that whoever
finds it after a crash knows that it sleeps and what it served. The holder of the devices renews its rows; where it does
not, it is dead, and the watch over the engines brings them back.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.clock import now_us

Side = Literal["train", "rollout"]
HELD_S = 60.0  # how long rows count as held after they were renewed
LEARNED_FROM = 8  # changes that an expected cost is the median of
_A, _S = t.asleep_engines.c, t.switches.c


@dataclass(frozen=True, slots=True, kw_only=True)
class AsleepEngine:
    """An engine that gave its memory back, with what it served before; `process` tells it from a restarted one."""

    url: str
    member: str
    process: str | None
    model_path: str
    weight_version: str | None
    held_until_us: int

    def is_process(self, server_info: Mapping[str, Any]) -> bool:
        """Whether an engine that says this of itself is the process that fell asleep, not one started since."""
        return process_of(server_info) == self.process

    @property
    def is_held(self) -> bool:
        """Whether somebody trains on its devices."""
        return self.held_until_us > now_us()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRow:
    """One change of hands: seconds by step, bytes that engines gave back as far as they say, and how it ended."""

    member: str
    side: Side
    began_us: int
    seconds: float
    steps: Mapping[str, float]
    freed_bytes: int | None
    error: str | None  # None: it succeeded


def process_of(server_info: Mapping[str, Any]) -> str | None:
    """What tells an engine's process from the next one at the same address: its start, or SGLang's random seed."""
    found = server_info.get("startup_time") or server_info.get("random_seed")
    return None if found is None else str(found)


def put_to_sleep(catalog: Catalog, engine: AsleepEngine) -> None:
    """Note that an engine is about to give its memory back. What an earlier row says that it served stays."""
    row = asdict(engine)
    with catalog.writing(Area.ENGINES).begin() as connection:
        known = connection.execute(sa.select(t.asleep_engines).where(_A.url == engine.url)).first()
        if known is None:
            connection.execute(t.asleep_engines.insert().values(row))
        elif known.process != engine.process:
            connection.execute(t.asleep_engines.update().where(_A.url == engine.url).values(row))
        else:
            held = {"member": engine.member, "held_until_us": engine.held_until_us}
            connection.execute(t.asleep_engines.update().where(_A.url == engine.url).values(held))


def hold(catalog: Catalog, member: str) -> None:
    """Renew the rows of a member's engines."""
    until_us = now_us() + int(HELD_S * 1e6)
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.asleep_engines.update().where(_A.member == member).values(held_until_us=until_us))


def let_go(catalog: Catalog, member: str) -> None:
    """Let the watch bring back the engines of a member that still sleep."""
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.asleep_engines.update().where(_A.member == member).values(held_until_us=0))


def wake_up(catalog: Catalog, urls: Collection[str]) -> None:
    """Note that engines serve again."""
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.asleep_engines.delete().where(_A.url.in_(list(urls))))


def asleep_engines(catalog: Catalog) -> dict[str, AsleepEngine]:
    """The engines that hold no memory, by URL."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.asleep_engines).order_by(_A.url)).all()
    return {row.url: AsleepEngine(**row._mapping) for row in rows}


def add_switch(catalog: Catalog, row: SwitchRow) -> None:
    """Keep what a change of hands cost."""
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.switches.insert().values(asdict(row) | {"steps": dict(row.steps)}))


def switches(catalog: Catalog) -> list[SwitchRow]:
    """All changes of hands, oldest first."""
    columns = [column for column in t.switches.c if column.name != "switch_id"]
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(*columns).order_by(_S.switch_id)).all()
    return [SwitchRow(**row._mapping) for row in rows]


def expected_s(catalog: Catalog, member: str, side: Side) -> float | None:
    """What a change costs in seconds: the median of the last ones that succeeded; None while there is none."""
    wanted = (_S.member == member) & (_S.side == side) & _S.error.is_(None)
    newest = sa.select(_S.seconds).where(wanted).order_by(_S.switch_id.desc()).limit(LEARNED_FROM)
    with catalog.reading().begin() as connection:
        found = list(connection.scalars(newest))
    return statistics.median(found) if found else None
