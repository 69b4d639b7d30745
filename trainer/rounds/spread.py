"""Which groups have rewards that differ, as far as that is known before a round: nothing is asked of a judge here.

Invariant: a group counts as without spread only where the round that claimed it would find none either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from weir.store.catalog.catalog import Catalog
from weir.trainer.credit.advantages import group_advantages
from weir.trainer.credit.samples import is_judged
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import ask_all, judged_of
from weir.trainer.rewards.stored import joined_rewards
from weir.trainer.rounds.group_selection import ChosenGroup
from weir.trainer.rounds.prepare import judged_group, on_kept
from weir.trainer.settings.config import TrainerConfig

WITHOUT_GROUPS = ("reinforce_plus_plus", "gae")  # advantages that compare no answers of a group


def spreads(groups: Sequence[ChosenGroup], catalog: Catalog, config: TrainerConfig) -> dict[str, bool]:
    """Whether the rewards of a group differ, for those groups all of whose rewards are in the store.

    Empty where groups without spread are trained on, and where hooks may change rewards.
    """
    if config.hooks or config.keep_without_spread or config.advantage in WITHOUT_GROUPS:
        return {}
    kept = {g.row.group_id: on_kept([c for of in g.calls.values() for c in of], config.branches) for g in groups}
    answers = [Answer(call=c, task=g.task) for g in groups for c in kept[g.row.group_id] if is_judged(c)]
    stored = joined_rewards([group.rewards for group in groups])
    given = asyncio.run(ask_all(answers, stored, catalog, config, round_id=None, wanted=lambda: False))
    judged = judged_of(answers, given, config, 0.0)
    found = {}
    for group in groups:
        calls = kept[group.row.group_id]
        if any(is_judged(call) and call.call_id not in judged.rewards for call in calls):
            continue
        of_group = judged_group(group.row.group_id, group.size, calls, judged, config)
        advantages = group_advantages(of_group, credit=config.credit, advantage=config.advantage, gamma=config.gamma)
        found[group.row.group_id] = advantages is not None
    return found
