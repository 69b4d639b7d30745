"""Makes samples from claimed groups: judging, hooks, credit, advantages.

Invariant: only judging does I/O; the rest is a pure function of calls, verdicts and settings. Every claimed call
becomes a sample or is counted under one reason.
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
from weir.trainer.credit.samples import Sample, is_judged, make_samples, why_left_out
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
    """The samples of a round, and its metrics so far."""

    samples: list[Sample]
    metrics: Metrics
    left_out: dict[str, Skip]  # by call: why it is no sample


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditedCalls:
    """The advantage of each call that has one, and the reasons why others have none."""

    advantages: dict[str, float]
    rewards: dict[str, float]  # at the last token of each call, for token-level advantages
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
    """Judge a round's calls and make its samples. Raises `JudgeUnavailable`, and `TrainerUsageError` for a bad hook."""
    with times.step("branches"):
        kept = {group_id: on_kept(of_group, config.branches) for group_id, of_group in calls.items()}
    with times.step("judge"):
        judged = _judge(claimed, kept, catalog, config, console)
    on_step("judged")
    with times.step("hooks"):
        groups = judged_groups(claimed, kept, judged, config)
        hooked = apply_hooks(groups, load_hooks(config.hooks), min_item_ratio=config.min_valid_item_size_ratio)
    with times.step("advantages"):
        credited = credit_calls(hooked, config)
    with times.step("samples"):
        samples, left_out = _samples(claimed, calls, kept, credited, judged.without | hooked.without, config)
    metrics = _metrics(claimed, groups, hooked, credited, judged, config)
    counted = sample_metrics(samples, Counter(left_out.values()), claimed.parent)
    return RoundData(samples=samples, metrics=metrics | counted, left_out=left_out)


def _samples(
    claimed: ClaimedRound,
    calls: Mapping[str, Sequence[StoredCall]],
    kept: Mapping[str, Sequence[StoredCall]],
    credited: CreditedCalls,
    without: Mapping[str, Skip],
    config: TrainerConfig,
) -> tuple[list[Sample], dict[str, Skip]]:
    every_call = [call for of_group in calls.values() for call in of_group]
    trained = {call.call_id for of_group in kept.values() for call in of_group}
    others = [call.call_id for call in every_call if call.call_id not in trained]
    reasons = credited.reasons | dict(without) | dict.fromkeys(others, Skip.OTHER_BRANCH)
    chosen = (credited.advantages, reasons, claimed.parent, config)
    samples, _ = make_samples(every_call, *chosen, rewards=credited.rewards)
    why = {call.call_id: why_left_out(call, *chosen) for call in every_call}
    return samples, {call_id: reason for call_id, reason in why.items() if reason is not None}


def _metrics(
    claimed: ClaimedRound,
    groups: Sequence[Group],
    hooked: HookedGroups,
    credited: CreditedCalls,
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
        "groups_over_buffer": len(claimed.surplus),
        "groups_unversioned": claimed.unversioned,
        "groups_invalid": hooked.groups_invalid,
        "groups_too_small": hooked.groups_too_small,
        "frac_groups_without_spread": credited.groups_without_spread / max(len(hooked.groups), 1),
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
    """The calls of one group on the branches that the policy keeps, in their order."""
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
    """The rewarded calls in the form of hooks; bounds and penalties shape `reward`, never `raw_reward`."""
    sizes = {group.group_id: group.group_size for group in claimed.groups}
    return [judged_group(group_id, size, calls[group_id], judged, config) for group_id, size in sizes.items()]


def judged_group(group_id: str, size: int, calls: Sequence[StoredCall], judged: Judged, config: TrainerConfig) -> Group:
    """The rewarded calls of one group in the form of hooks."""
    turns = _with_turns(calls)
    items = tuple(_item(call, turn, judged, config) for call, turn in turns if call.call_id in judged.rewards)
    return Group(group_id=group_id, group_size=size, items=items)


def _with_turns(calls: Sequence[StoredCall]) -> Iterator[tuple[StoredCall, int]]:
    """The calls with an answer, each with its index among the answers of its session."""
    turns: Counter[str] = Counter()
    for call in calls:
        if is_judged(call):
            yield call, turns[call.session_id]
            turns[call.session_id] += 1


def credit_calls(hooked: HookedGroups, config: TrainerConfig) -> CreditedCalls:
    """Advantages, group by group; for token-level advantages, the rewards from which tokens are credited later."""
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
    return CreditedCalls(advantages=advantages, rewards={}, reasons=reasons, groups_without_spread=without_spread)


def _returns_of_calls(hooked: HookedGroups, config: TrainerConfig) -> CreditedCalls:
    returns: dict[str, float] = {}
    for group in hooked.groups:
        returns |= credited_returns(group, credit=config.credit, gamma=config.gamma)[0]
    if not has_spread(list(returns.values())):
        reasons = dict.fromkeys(returns, Skip.NO_SPREAD)
        return CreditedCalls(advantages={}, rewards={}, reasons=reasons, groups_without_spread=0)
    return CreditedCalls(advantages=dict.fromkeys(returns, 0.0), rewards=returns, reasons={}, groups_without_spread=0)


def _rewards_of_calls(hooked: HookedGroups, config: TrainerConfig) -> CreditedCalls:
    """Each call's own reward; with trajectory credit, only leaves of the tree have one."""
    items = [item for group in hooked.groups for item in group.items]
    inner = {item.parent_call for item in items} if config.credit == "trajectory" else set()
    rewards = {item.call_id: 0.0 if item.call_id in inner else item.reward for item in items}
    return CreditedCalls(advantages=dict.fromkeys(rewards, 0.0), rewards=rewards, reasons={}, groups_without_spread=0)


def overlong_penalty(length: int, config: TrainerConfig) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, section 3.4), at most 0, for an answer of `length` tokens.

    It grows linearly over the buffer before the limit.
    """
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
