"""Groups whose rewards are all alike, as far as it is known before a round."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support_rounds import Judge, add_group, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import ask_all
from weir.trainer.rounds.group_selection import choose_groups
from weir.trainer.rounds.spread import spreads


def test_spread_is_known_of_groups_that_were_judged_ahead_and_nothing_is_asked(
    store: StoreConfig, judge: Judge, tiny_model_dir: Path
) -> None:
    for group, rewards in {"alike": [0.3, 0.3], "different": [0.0, 0.3], "unjudged": [0.3, 0.3]}.items():
        add_group(store, tiny_model_dir, group, rewards)
    config = trainer_config(judge, groups_per_round=3)
    catalog = Catalog.open(store)
    groups = choose_groups(catalog, store, config, parent=0).groups
    ahead = [group for group in groups if group.row.group_id != "unjudged"]
    answers = [Answer(call=call, task=of.task) for of in ahead for calls in of.calls.values() for call in calls]
    asyncio.run(ask_all(answers, {}, catalog, config, round_id=None))
    asked = len(judge.candidates)
    assert spreads(groups, catalog, config) == {"alike": False, "different": True}
    assert len(judge.candidates) == asked == 4
    assert spreads(groups, catalog, config.model_copy(update={"keep_without_spread": True})) == {}
    catalog.close()
