"""A selection of sessions as a file for another trainer, by `weir export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.query.trajectories import Policy, choose, chosen_groups
from weir.ui.control.plan import Given, Plan, View
from weir.ui.data.session_rows import SESSION_ROWS
from weir.ui.data.sessions import count_sessions, filter_condition
from weir.ui.errors import BadQuestion

FORMATS = {"trl": "parquet", "verl": "parquet", "slime": "pt", "jsonl": "jsonl", "parquet": "parquet"}  # the file's end
NEEDS_REWARD = ("trl", "verl", "slime")


def plan_export(view: View, given: Given) -> Plan:
    """The branches of the sessions that a filter selects. Raises BadQuestion."""
    form, policy, where = given.get("format", "jsonl"), given.get("policy", "longest"), given.get("where", "").strip()
    if form not in FORMATS:
        raise BadQuestion(f"there is no format {form!r}: choose one of {', '.join(FORMATS)}")
    if policy not in list(Policy):
        raise BadQuestion(f"there is no policy {policy!r}: choose one of {', '.join(Policy)}")
    filtered = filter_condition(view.cursor, where)
    count_sessions(view.cursor, filtered)  # refuses what does not fit the table, by the names of its columns
    selected = f"session_id IN (SELECT session_id FROM session_rows WHERE {filtered})"
    choice = choose(view.cursor, selected, {}, Policy(policy), with_reward=form in NEEDS_REWARD)
    num_groups = len(chosen_groups(view.cursor))
    if not choice.count:
        why = "".join(f"; {count:,} are left out {reason}" for reason, count in choice.left_out.items())
        raise BadQuestion(f"this selection has no trajectory to export{why}")
    left_out = [f"{count:,} are left out {reason}." for reason, count in choice.left_out.items()]
    store = view.store
    # The command has no table session_rows: its query stands in its place.
    condition = (
        f"session_id IN (SELECT session_id FROM ({SESSION_ROWS}) session_rows WHERE {filtered})" if where else "true"
    )

    def command(action_id: str) -> Sequence[str]:
        target = export_file(store, action_id, form)
        target.parent.mkdir(parents=True, exist_ok=True)
        return ["export", "--format", form, "--policy", policy, "--where", condition, "--output", str(target)]

    return Plan(
        subject=where or "all sessions",
        title=f"Export for {form}",
        effects=(
            f"{choice.count:,} trajectories of {num_groups:,} groups are written as {form} "
            f"({'sessions with ' + where if where else 'all sessions'}; policy {policy}).",
            *left_out,
            f"The file is made in {export_folder(store)}, and stays there until somebody removes it.",
            "Its groups stay in the store until the file is whole.",
        ),
        button="Write the file",
        given={"where": where, "format": form, "policy": policy},
        command=command,
    )


def export_folder(store: StoreConfig) -> Path:
    """Where files of exports are."""
    return store.folder / "exports"


def export_file(store: StoreConfig, action_id: str, form: str) -> Path:
    """The file of an export."""
    return export_folder(store) / f"{action_id}.{FORMATS[form]}"
