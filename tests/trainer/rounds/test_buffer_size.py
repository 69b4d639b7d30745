"""The bound on waiting groups (`max_buffer_size`) and on what a filter leaves of a group, in whole rounds."""

from __future__ import annotations

from pathlib import Path

from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.hooks import GroupItem
from weir.trainer.trainer import Trainer


def keep_the_best(item: GroupItem) -> bool:
    return item.reward == 1.0


def test_the_oldest_groups_beyond_the_buffer_are_consumed_unjudged_and_counted(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    for group_id in ("g1", "g2", "g3", "g4"):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
    trainer = Trainer(trainer_config(judge, max_buffer_size=5), store, model_path=tiny_model_dir)
    planned = trainer.plan()
    assert planned is not None
    assert (planned.surplus, [group.group_id for group in planned.groups]) == (["g1", "g2"], ["g3", "g4"])
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["groups_over_buffer"], report.metrics["groups"]) == (2, 2)
    assert len(judge.candidates) == 4
    assert trainer.run_round() is None
    trainer.close()


def test_calls_of_a_group_that_lost_too_many_items_are_counted_under_their_reason(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    config = trainer_config(
        judge, min_valid_item_size_ratio=0.7, hooks={"filter_item": f"{__name__}:{keep_the_best.__name__}"}
    )
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    trainer.close()
    assert report is not None
    assert (report.metrics["groups_too_small"], report.metrics["samples"]) == (1, 0)
    assert report.metrics["skipped"] == {"filtered": 2, "too_few_items": 1}
