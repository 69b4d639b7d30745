"""Rounds over groups whose engines named their weights by no integer: left out, counted and said, and no obstacle."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.trainer import Trainer


def test_a_round_trains_on_the_other_groups_and_says_which_it_leaves_out(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    for name in ("g1", "g2"):
        add_group(store, tiny_model_dir, name, [0.0, 1.0], version="default")
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0])
    add_group(store, tiny_model_dir, "g4", [0.0, 1.0], version="assumed:0")
    console = Console(record=True, width=400, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir, console=console)
    try:
        report = trainer.run_round()
        assert report is not None
        counted = [report.metrics[name] for name in ("groups", "samples", "groups_unversioned")]
        assert counted == [2, 4, 2]
        [claimed] = trainer.catalog.rounds()
        assert [group["group_id"] for group in claimed.manifest["groups"]] == ["g3", "g4"]
        assert trainer.run_round() is None
        found = trainer.ready()
        assert set(found.unversioned) == {"g1", "g2"} and not found.groups
    finally:
        trainer.close()
    said = console.export_text()
    assert said.count("2 groups are left out: call call-g1-1: the engine named the weights") == 1
    assert "version 1 is published to nobody" in said and "engine.urls or trainer.engine_urls" in said
    assert "'default'" in said and "--weight-version" in said and "proxy.assumed_version" in said
