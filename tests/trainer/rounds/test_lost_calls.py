"""Rounds over groups with lost calls: they wait, are named, and are taken without the sessions that lack a call."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.store.log.intents import FILE
from weir.store.log.writer import LogWriter
from weir.trainer.trainer import Trainer


def lose_a_call(store: StoreConfig, session_id: str, group_id: str) -> None:
    """Leave what a proxy leaves that is killed with a call upstream."""
    log = LogWriter(store.folder, "killed", store)
    log.intents.begin("call_lost", session_id, group_id, 1)
    kept = (log.folder / FILE).read_bytes()
    log.close()
    (log.folder / FILE).write_bytes(kept)


def test_a_group_with_a_lost_call_waits_and_in_time_is_taken_without_its_session(
    store: StoreConfig, judge: Judge, tiny_model_dir: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    trainer = Trainer(
        trainer_config(judge), store, model_path=tiny_model_dir, console=Console(record=True, width=400, quiet=True)
    )
    planned = trainer.plan()
    assert planned is not None
    [group] = planned.groups
    session_id = sorted(group.calls)[0]
    lose_a_call(store, session_id, "g1")
    assert trainer.plan() is None
    assert "1 of its sessions lack calls that were lost" in trainer.ready().damaged["g1"]
    trainer.close()
    patient = Trainer(
        trainer_config(judge, group_timeout_s=0.001, min_timeout_group_size_ratio=0.5), store, model_path=tiny_model_dir
    )
    late = patient.plan()
    patient.close()
    assert late is not None
    [group] = late.groups
    assert session_id not in group.calls and len(group.calls) == 2
