"""The five hooks in rounds: each replaced by an import path, and no fault of the predecessor's defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support_rounds import Judge, add_group, add_sessions, make_record, trainer_config

from weir.store.config import StoreConfig
from weir.store.reader import load_calls
from weir.trainer.credit.samples import make_samples
from weir.trainer.errors import TrainerUsageError
from weir.trainer.hooks import HookName
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer

REPLACED: dict[HookName, tuple[str, dict[str, object]]] = {
    "get_group_data_meta_info": ("count_sessions", {"meta_info": {"sessions": 6.0}}),
    "filter_item": ("above_a_tenth", {"items_filtered": 3, "samples": 2, "skipped": {"filtered": 3, "no_spread": 1}}),
    "is_valid_group": ("of_three", {"groups_invalid": 1, "samples": 4, "skipped": {"filtered": 2}}),
    "normalize_group_data": ("without_spread", {"samples": 0, "skipped": {"no_spread": 6}}),
    "pad_group_data": ("without_the_last", {"samples": 3, "skipped": {"filtered": 2, "no_spread": 1}}),
}


@pytest.mark.parametrize("name", REPLACED)
def test_each_hook_is_replaced_by_an_import_path(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, name: HookName
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0, 0.1])
    add_group(store, tiny_model_dir, "g2", [0.0, 0.7])
    function, expected = REPLACED[name]
    trainer = Trainer(
        trainer_config(judge, hooks={name: f"support_hooks:{function}"}), store, model_path=tiny_model_dir
    )
    report = trainer.run_round()
    assert report is not None
    assert {key: report.metrics[key] for key in expected} == expected
    trainer.close()


@pytest.mark.parametrize("function", ["with_nan", "with_infinity", "with_a_huge_one", "with_an_integer_beyond_floats"])
@pytest.mark.parametrize("algorithm", ["dapo", "reinforce_plus_plus"])
def test_a_reward_that_a_hook_makes_unfit_leaves_out_its_call_alone(
    algorithm: str, function: str, tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    config = trainer_config(judge, algorithm=algorithm, hooks={"normalize_group_data": f"support_hooks:{function}"})
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["skipped"]) == (2, {"reward_not_finite": 1})
    trainer.close()


def test_numbers_of_other_kinds_are_rewards(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    config = trainer_config(judge, hooks={"normalize_group_data": "support_hooks:other_numbers"})
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["skipped"]) == (3, {})
    trainer.close()


REFUSED: dict[str, tuple[HookName, str]] = {
    "clearing": ("get_group_data_meta_info", r"changed the list of groups .*\(1 groups, then 0\).*filter_item"),
    "of_texts": ("get_group_data_meta_info", r"returned for judge <object .*expected a number"),
    "with_a_text": ("normalize_group_data", r"a hook gave call call-g1-0 the reward '0\.5' \(str\), expected a number"),
    "with_two": ("normalize_group_data", r"call-g1-0 the reward array\(\[0\., 0\.\]\) \(ndarray\), expected a number"),
    "nothing": ("pad_group_data", r"a hook returned None; "),
}


@pytest.mark.parametrize("function", REFUSED)
def test_a_hook_that_gives_what_it_may_not_is_named_and_consumes_nothing(
    function: str, tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    name, said = REFUSED[function]
    trainer = Trainer(
        trainer_config(judge, hooks={name: f"support_hooks:{function}"}), store, model_path=tiny_model_dir
    )
    with pytest.raises(TrainerUsageError, match=said):
        trainer.run_round()
    assert [(row.round_id, row.state) for row in trainer.catalog.rounds()] == [(1, "claimed")]
    trainer.close()


def test_the_fastest_kernels_are_trained_on(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    """The predecessor's filter_item dropped rewards above 1."""
    add_group(store, tiny_model_dir, "g1", [0.0, 2.3])
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["items_filtered"]) == (2, 0)
    trainer.close()


def test_groups_that_are_too_few_for_a_round_are_all_there_for_the_next(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    """The predecessor deleted finished groups before it looked for their number, and had them in memory only."""
    config = trainer_config(judge, groups_per_round=3, min_groups=3)
    for group_id in ("g1", "g2"):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
    early = Trainer(config, store, model_path=tiny_model_dir)
    assert early.run_round() is None
    early.close()
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0])
    later = Trainer(config, store, model_path=tiny_model_dir)
    report = later.run_round()
    assert report is not None
    assert (report.metrics["groups"], report.metrics["samples"]) == (3, 6)
    later.close()


def test_a_group_that_lost_items_is_not_filled_up_with_copies(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    """The predecessor's pad_group_data copied an item and halved what both copies count; here it would count twice."""
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    copying = {"pad_group_data": "support_hooks:with_a_copy"}
    trainer = Trainer(trainer_config(judge, hooks=copying), store, model_path=tiny_model_dir)
    with pytest.raises(TrainerUsageError, match="call call-g1-0 is in the groups 2 times"):
        trainer.run_round()
    trainer.close()


def test_what_is_trained_on_is_what_was_sampled_not_its_text_again(store: StoreConfig) -> None:
    """The predecessor tokenised texts again, and had no logprobs."""
    ids, told = np.array([300, 301, 7, 7], np.int32), np.array([-0.5, -1.5, -0.25, -2.0], np.float32)
    add_sessions(store, "g", [[make_record("c", "s", "g", [11, 12], ids, told, text="quite another text")]])
    samples, skipped = make_samples(load_calls(store, ["s"])["s"], {"c": 1.0}, {}, 0, TrainerConfig())
    assert not skipped
    assert [sample.output_ids.tolist() for sample in samples] == [ids.tolist()]
    assert [sample.old_logprobs.tolist() for sample in samples] == [told.tolist()]
