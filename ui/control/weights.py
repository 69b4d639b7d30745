"""Rounds and published weights, by `weir round`, `weir publish` and `weir rollback`."""

from __future__ import annotations

from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.proxies import is_live, proxies
from weir.store.catalog.rows import VersionRow
from weir.ui.control.commands import Commands
from weir.ui.control.plan import Given, Plan, View
from weir.ui.errors import BadQuestion, NotFound, Unavailable

DRY_RUN = ("round", "--dry-run")
DRY_RUN_S = 300.0


async def plan_round(commands: Commands) -> Plan:
    """What `weir round --dry-run` says. Raises Unavailable where it does not end, or refuses."""
    commands.require_free(exclusive=True)
    status, said = await commands.ask(DRY_RUN, DRY_RUN_S)
    if status:
        raise Unavailable(f"`{commands.shown(DRY_RUN)}` says: {said.strip()[-2000:]}")
    return Plan(
        subject="the ready groups",
        title="Start a round",
        effects=(
            "A dry run says what stands below, and has changed nothing.",
            "A round takes the groups that are ready when it starts."
            " It judges, trains, and publishes its version to the engines through the gate.",
            "It ends early with the page's server, and is then continued by the next round.",
        ),
        details=said.strip(),
        button="Start the round",
        given={},
        command=lambda action_id: ["round"],
        exclusive=True,
    )


def plan_publish(view: View, given: Given) -> Plan:
    """Bring a version to every engine. Raises NotFound, and BadQuestion where its folder is not on this machine."""
    row = _version(view.catalog, given.get("version", ""))
    folder = Path(row.path)
    if not folder.is_dir():
        raise BadQuestion(
            f"version {row.version} has no folder on this machine ({folder}): it was made elsewhere or deleted"
        )
    return Plan(
        subject=str(row.version),
        title=f"Publish version {row.version}",
        effects=(f"Every engine loads the weights in {folder}.", *_served(view.catalog)),
        button="Publish it",
        given={"version": str(row.version)},
        command=lambda action_id: ["publish", str(folder)],
        exclusive=True,
    )


def plan_rollback(view: View, given: Given) -> Plan:
    """Publish the weights of an earlier version again. Raises NotFound, and BadQuestion for the newest one."""
    row = _version(view.catalog, given.get("version", ""))
    newest = max(one.version for one in view.catalog.versions())
    if row.version == newest:
        raise BadQuestion(
            f"version {newest} is the newest: there is nothing to go back from; it can be published again"
        )
    return Plan(
        subject=str(row.version),
        title=f"Roll back to version {row.version}",
        effects=(
            f"The weights of version {row.version} become version {newest + 1}, and every engine loads them.",
            f"The next round continues from them. Versions {row.version + 1} to {newest} stay in the store.",
            *_served(view.catalog),
        ),
        button="Roll back",
        given={"version": str(row.version)},
        command=lambda action_id: ["rollback", str(row.version)],
        exclusive=True,
    )


def _version(catalog: Catalog, text: str) -> VersionRow:
    found = next((row for row in catalog.versions() if str(row.version) == text), None)
    if found is None:
        raise NotFound(f"there is no weight version {text!r} in the store; the page of actions lists them")
    return found


def _served(catalog: Catalog) -> list[str]:
    """What is served now, and whose calls wait meanwhile."""
    published = [row for row in catalog.versions() if row.published_us is not None]
    newest = max(published, key=lambda row: row.published_us or 0, default=None)
    gates = sorted({row.url for row in proxies(catalog) if is_live(row)})
    effects = [f"Version {newest.version} was published last, to {', '.join(newest.engines or [])}." if newest else ""]
    effects.append(
        f"Calls wait at {', '.join(gates)} until the engines have loaded."
        if gates
        else "No proxy of this store is alive now."
    )
    return list(filter(None, effects))
