"""Makes samples from recorded calls that can be trained on.

Invariant: a sample holds exactly the recorded prompt ids, output ids and logprobs, and says how the engine drew the
tokens (`behaviour.py`). Calls that are left out are counted under a reason; nothing is repaired or guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from weir.store.reader import StoredCall
from weir.store.records.call_record import CaptureLevel, Experts, FinishReason, Logprobs, TokenIds
from weir.trainer.credit.behaviour import ON_POLICY, Behaviour, behaviour_of
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.skip import Skip

JUDGED_FINISHES = frozenset({FinishReason.STOP, FinishReason.LENGTH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call with its advantage."""

    call_id: str
    group_id: str
    prompt_ids: TokenIds  # (P,)
    output_ids: TokenIds  # (N,), all of them targets
    old_logprobs: Logprobs  # (N,), as recorded, in nats
    versions: npt.NDArray[np.int32]  # (N,), the weight version of each token
    temperature: float  # of the policy that is trained
    advantage: float  # of each token; 0 with token-level advantages (`losses/gae.py`)
    reward: float = 0.0  # at the last token, with token-level advantages
    follows: str | None = None  # the sample of the preceding call, with token-level advantages
    behaviour: Behaviour = ON_POLICY  # how its tokens were drawn
    sampling_logprobs: Logprobs | None = None  # (N,), after truncation, where the engine gave them
    routed_experts: Experts | None = (
        None  # (P + N - 1, layers × chosen), of all tokens but the last, with routing_replay
    )

    def __post_init__(self) -> None:
        more = () if self.sampling_logprobs is None else (self.sampling_logprobs,)
        if len({len(column) for column in (self.output_ids, self.old_logprobs, self.versions, *more)}) != 1:
            raise ValueError(f"call {self.call_id}: output ids, logprobs and versions differ in length")

    @property
    def ids(self) -> TokenIds:
        """Prompt and output, shape (P + N,)."""
        return np.concatenate([self.prompt_ids, self.output_ids])

    @property
    def targets(self) -> npt.NDArray[np.bool_]:
        """True at the output, shape (P + N,)."""
        return np.arange(len(self.prompt_ids) + len(self.output_ids)) >= len(self.prompt_ids)


def is_judged(call: StoredCall) -> bool:
    """Whether the call finished normally: only then is its answer judged."""
    return call.finish in JUDGED_FINISHES


def why_untrainable(call: StoredCall, parent_version: int, config: TrainerConfig) -> Skip | None:
    """The first reason why a call cannot be trained on, or None."""
    if not is_judged(call):
        return Skip.UNFINISHED
    if call.level != CaptureLevel.TOKENS:
        return Skip.LEVEL
    if len(call.prompt_ids) == 0 or len(call.output_ids) == 0:
        return Skip.EMPTY
    if config.routing_replay and call.routed_experts is None:
        return Skip.UNROUTED
    return (
        _wrong_version(call, parent_version, config.max_staleness)
        or _wrong_sampling(call, config)
        or _wrong_length(call, config)
        or _wrong_logprobs(call)
    )


def _wrong_version(call: StoredCall, parent_version: int, max_staleness: int) -> Skip | None:
    if int(call.versions.max()) > parent_version:
        return Skip.FUTURE
    return Skip.STALE if is_stale(call, parent_version, max_staleness) else None


def is_stale(call: StoredCall, parent_version: int, max_staleness: int) -> bool:
    """Whether a call's oldest token is more than `max_staleness` versions old; the call must have tokens."""
    return parent_version - int(call.versions.min()) > max_staleness


def _wrong_sampling(call: StoredCall, config: TrainerConfig) -> Skip | None:
    behaviour = behaviour_of(call.sampling)
    if behaviour.greedy:
        return Skip.GREEDY if config.off_policy.greedy == "skip" else None
    if behaviour.is_changed and config.off_policy.truncated == "skip":
        return Skip.TRUNCATED_SAMPLING
    return Skip.UNKNOWN_SUPPORT if behaviour.is_unknown and call.sampling_logprobs is None else None


def _wrong_length(call: StoredCall, config: TrainerConfig) -> Skip | None:
    limit = config.max_sample_tokens
    if limit is not None and len(call.prompt_ids) + len(call.output_ids) > limit:
        return Skip.TOO_LONG
    return Skip.TRUNCATED if call.finish == FinishReason.LENGTH and not config.train_truncated else None


def _wrong_logprobs(call: StoredCall) -> Skip | None:
    known = (call.output_logprobs, *(() if call.sampling_logprobs is None else (call.sampling_logprobs,)))
    return None if all(np.isfinite(logprobs).all() for logprobs in known) else Skip.NOT_FINITE


def why_left_out(
    call: StoredCall,
    advantages: Mapping[str, float],
    reasons: Mapping[str, Skip],
    parent_version: int,
    config: TrainerConfig,
) -> Skip | None:
    """Why a call becomes no sample, or None; `reasons` is as in `make_samples`."""
    reason = why_untrainable(call, parent_version, config)
    if reason is None and call.call_id in advantages:
        return None
    return reason or reasons.get(call.call_id, Skip.FILTERED)


def make_samples(
    calls: Iterable[StoredCall],
    advantages: Mapping[str, float],
    reasons: Mapping[str, Skip],
    parent_version: int,
    config: TrainerConfig,
    *,
    rewards: Mapping[str, float] = MappingProxyType({}),
) -> tuple[list[Sample], Counter[Skip]]:
    """Samples of the calls that can be trained on and have an advantage, in the order of `calls`; the others counted.

    `reasons` says why a call has no advantage; a call in neither was dropped by a hook. `rewards` are those at the last
    token of calls, for token-level advantages.
    """
    calls = list(calls)
    skipped: Counter[Skip] = Counter()
    trained: dict[str, StoredCall] = {}
    for call in calls:
        reason = why_left_out(call, advantages, reasons, parent_version, config)
        if reason is None:
            trained[call.call_id] = call
        else:
            skipped[reason] += 1
    follows = _of_session(trained) if config.credit == "turn" else _of_branch(calls, trained)
    samples = [
        _sample(call, advantages[call_id], rewards.get(call_id, 0.0), follows[call_id], routed=config.routing_replay)
        for call_id, call in trained.items()
    ]
    return samples, skipped


def _of_session(trained: Mapping[str, StoredCall]) -> dict[str, str | None]:
    """The call before each in its session, also across a rewritten history."""
    last: dict[str, str] = {}
    follows: dict[str, str | None] = {}
    for call_id, call in trained.items():
        follows[call_id] = last.get(call.session_id)
        last[call.session_id] = call_id
    return follows


def _of_branch(calls: Iterable[StoredCall], trained: Mapping[str, StoredCall]) -> dict[str, str | None]:
    """The nearest ancestor of each that is trained on."""
    parents = {call.call_id: call.parent_call for call in calls}

    def above(call_id: str) -> str | None:
        parent = parents[call_id]
        while parent is not None and parent not in trained:
            parent = parents.get(parent)
        return parent

    return {call_id: above(call_id) for call_id in trained}


def _sample(call: StoredCall, advantage: float, reward: float, follows: str | None, *, routed: bool) -> Sample:
    behaviour = behaviour_of(call.sampling)
    return Sample(
        call_id=call.call_id,
        group_id=call.group_id,
        prompt_ids=call.prompt_ids,
        output_ids=call.output_ids,
        old_logprobs=call.output_logprobs,
        versions=call.versions,
        temperature=behaviour.temperature,
        advantage=advantage,
        reward=reward,
        follows=follows,
        behaviour=behaviour,
        sampling_logprobs=call.sampling_logprobs if behaviour.truncates else None,
        routed_experts=call.routed_experts if routed else None,
    )
