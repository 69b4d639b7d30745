"""From claimed groups to samples: judge, hooks, credit, advantages, and the count of everything that is left out.

Invariant: given the claimed calls and their verdicts, all of it is a pure function of the settings; only judging
talks to anybody. Every claimed call is either a sample or counted under one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.reader import StoredCall
from weir.trainer.credit.advantages import credited_returns, group_advantages, has_spread
from weir.trainer.credit.branches import on_kept_branches
from weir.trainer.credit.samples import Sample, is_judged, make_samples
from weir.trainer.hooks import Group, GroupItem, HookedGroups, apply_hooks, load_hooks
from weir.trainer.progress import progress
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import Judged, judge
from weir.trainer.rounds.claims import ClaimedRound, PinnedCalls
from weir.trainer.rounds.metrics import Metrics, reward_metrics, sample_metrics
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.reward_terms import raw_reward, shaped_reward
from weir.trainer.skip import Skip
from weir.trainer.timings import RoundTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundData:
    """What a round trains on, and the figures about it."""

    samples: list[Sample]
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The advantage of each call that has one, and why others have none."""

    advantages: dict[str, float]
    rewards: dict[str, float]  # at the last token of each call, where tokens are credited one by one
    reasons: dict[str, Skip]
    groups_without_spread: int


def prepare(
    claimed: ClaimedRound,
    calls: PinnedCalls,
    catalog: Catalog,
    config: TrainerConfig,
    console: Console,
    times: RoundTimes,
    on_step: Callable[[str], None] = lambda _: None,
) -> RoundData:
    """Judge a round's calls and make its samples. Raises `JudgeUnavailable`."""
    with times.step("branches"):
        kept = {group_id: on_kept(of_group, config.branches) for group_id, of_group in calls.items()}
    with times.step("judge"):
        judged = _judge(claimed, kept, catalog, config, console)
    on_step("judged")
    with times.step("hooks"):
        groups = judged_groups(claimed, kept, judged, config)
        hooked = apply_hooks(groups, load_hooks(config.hooks))
    with times.step("advantages"):
        weighed = weigh(hooked, config)
    with times.step("samples"):
        samples, skipped = _samples(claimed, calls, kept, weighed, judged.without | hooked.without, config)
    metrics = _metrics(claimed, groups, hooked, weighed, judged, config)
    return RoundData(samples=samples, metrics=metrics | sample_metrics(samples, skipped, claimed.parent))


def _samples(
    claimed: ClaimedRound,
    calls: Mapping[str, Sequence[StoredCall]],
    kept: Mapping[str, Sequence[StoredCall]],
    weighed: Weighed,
    without: Mapping[str, Skip],
    config: TrainerConfig,
) -> tuple[list[Sample], Counter[Skip]]:
    every_call = [call for of_group in calls.values() for call in of_group]
    trained = {call.call_id for of_group in kept.values() for call in of_group}
    others = [call.call_id for call in every_call if call.call_id not in trained]
    reasons = weighed.reasons | dict(without) | dict.fromkeys(others, Skip.OTHER_BRANCH)
    return make_samples(
        every_call,
        weighed.advantages,
        reasons,
        claimed.parent,
        config,
        rewards=weighed.rewards,
    )


def _metrics(
    claimed: ClaimedRound,
    groups: Sequence[Group],
    hooked: HookedGroups,
    weighed: Weighed,
    judged: Judged,
    config: TrainerConfig,
) -> Metrics:
    return {
        "round": claimed.round,
        "version": claimed.version,
        "parent": claimed.parent,
        "groups": len(groups),
        "groups_timed_out": sum(len(group.calls) < group.group_size for group in claimed.groups),
        "groups_expired": len(claimed.expired),
        "groups_invalid": hooked.groups_invalid,
        "frac_groups_without_spread": weighed.groups_without_spread / max(len(hooked.groups), 1),
        "items_filtered": hooked.items_filtered,
        "calls": sum(len(call_ids) for group in claimed.groups for call_ids in group.calls.values()),
        "meta_info": hooked.meta_info,
        **reward_metrics(
            [item for group in groups for item in group.items],
            config.reward_terms,
            list(judged.evaluations.values()),
        ),
    }


def on_kept(calls: Sequence[StoredCall], policy: str) -> list[StoredCall]:
    """The calls of one group that are judged and trained on, in their order."""
    sessions: dict[str, list[StoredCall]] = {}
    for call in calls:
        sessions.setdefault(call.session_id, []).append(call)
    kept = {call_id for session in sessions.values() for call_id in on_kept_branches(session, policy)}
    return [call for call in calls if call.call_id in kept]


def _judge(
    claimed: ClaimedRound,
    calls: Mapping[str, Sequence[StoredCall]],
    catalog: Catalog,
    config: TrainerConfig,
    console: Console,
) -> Judged:
    answers = [
        Answer(call=call, task=group.task)
        for group in claimed.groups
        for call in calls[group.group_id]
        if is_judged(call)
    ]
    with progress(console, f"round {claimed.round}: judging", len(answers)) as advance:
        return judge(
            answers,
            claimed.stored_rewards,
            catalog,
            config,
            round_id=claimed.round,
            on_value=lambda: advance(1, ""),
        )


def judged_groups(
    claimed: ClaimedRound,
    calls: Mapping[str, Sequence[StoredCall]],
    judged: Judged,
    config: TrainerConfig,
) -> list[Group]:
    """The rewarded calls as the hooks see them; bounds and penalties shape the reward, never the raw one."""
    return [
        Group(
            group_id=group.group_id,
            group_size=group.group_size,
            items=tuple(
                _item(call, turn, judged, config)
                for call, turn in _with_turns(calls[group.group_id])
                if call.call_id in judged.rewards
            ),
        )
        for group in claimed.groups
    ]


def _with_turns(calls: Sequence[StoredCall]) -> Iterator[tuple[StoredCall, int]]:
    """The calls that have an answer, each with its place in its session."""
    turns: Counter[str] = Counter()
    for call in calls:
        if is_judged(call):
            yield call, turns[call.session_id]
            turns[call.session_id] += 1


def weigh(hooked: HookedGroups, config: TrainerConfig) -> Weighed:
    """Credit and advantages, group by group; where the algorithm has no groups, the rewards that tokens come by."""
    if config.advantage == "reinforce_plus_plus":
        return _returns_of_calls(hooked, config)
    if config.advantage == "gae":
        return _rewards_of_calls(hooked, config)
    advantages: dict[str, float] = {}
    reasons: dict[str, Skip] = {}
    without_spread = 0
    for group in hooked.groups:
        found = group_advantages(group, credit=config.credit, advantage=config.advantage, gamma=config.gamma)
        if found is None:
            without_spread += 1
        if found is None and config.keep_without_spread:
            advantages.update((item.call_id, 0.0) for item in group.items)
        elif found is None:
            reasons.update((item.call_id, Skip.NO_SPREAD) for item in group.items)
        else:
            advantages.update(found)
    return Weighed(advantages=advantages, rewards={}, reasons=reasons, groups_without_spread=without_spread)


def _returns_of_calls(hooked: HookedGroups, config: TrainerConfig) -> Weighed:
    returns: dict[str, float] = {}
    for group in hooked.groups:
        returns |= credited_returns(group, credit=config.credit, gamma=config.gamma)[0]
    if not has_spread(list(returns.values())):
        reasons = dict.fromkeys(returns, Skip.NO_SPREAD)
        return Weighed(advantages={}, rewards={}, reasons=reasons, groups_without_spread=0)
    return Weighed(advantages=dict.fromkeys(returns, 0.0), rewards=returns, reasons={}, groups_without_spread=0)


def _rewards_of_calls(hooked: HookedGroups, config: TrainerConfig) -> Weighed:
    """Each call's own reward; for whole trajectories, that of the last call of a branch."""
    items = [item for group in hooked.groups for item in group.items]
    inner = {item.parent_call for item in items} if config.credit == "trajectory" else set()
    rewards = {item.call_id: 0.0 if item.call_id in inner else item.reward for item in items}
    return Weighed(advantages=dict.fromkeys(rewards, 0.0), rewards=rewards, reasons={}, groups_without_spread=0)


def overlong_penalty(length: int, config: TrainerConfig) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476), at most 0: it grows over the buffer before the limit."""
    if config.overlong_limit is None:
        return 0.0
    beyond = length - (config.overlong_limit - config.overlong_buffer)
    if beyond <= 0:
        return 0.0
    return -config.overlong_penalty * min(beyond / config.overlong_buffer if config.overlong_buffer else 1.0, 1.0)


def _item(call: StoredCall, turn: int, judged: Judged, config: TrainerConfig) -> GroupItem:
    values, row = judged.rewards[call.call_id], judged.evaluations.get(call.call_id)
    return GroupItem(
        session_id=call.session_id,
        call_id=call.call_id,
        parent_call=call.parent_call,
        turn=turn,
        reward=shaped_reward(values, config.reward_terms) + overlong_penalty(len(call.output_ids), config),
        raw_reward=raw_reward(values, config.reward_terms),
        rewards=values,
        compiled=None if row is None else row.compiled,
        correct=None if row is None else row.correct,
        fault=None if row is None else row.fault,
    )
