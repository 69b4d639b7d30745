"""The members of a run by its settings, and what must hold of them before a controller begins."""

from __future__ import annotations

from weir.cluster.config import ClusterConfig, ClusterMember
from weir.cluster.policies.placement import trainers
from weir.cluster.state import Member, Settings, State, Tag
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.placement import check_cores
from weir.store.catalog.cluster.members import MemberRow
from weir.trainer.settings.config import TrainerConfig


def members_of(config: ClusterConfig, trainer: TrainerConfig) -> dict[str, ClusterMember]:
    """The members by name: those of the settings, else every engine of the run, with both tags.

    Raises `UsageError` where there is none.
    """
    members = config.members or tuple(
        ClusterMember(name=f"engine-{number}", url=url) for number, url in enumerate(trainer.engine_urls)
    )
    if not members:
        raise UsageError("no members: start engines with `weir up`, or name them by [[cluster.members]] in weir.toml")
    return {member.name: member.model_copy(update={"url": member.url and member.url.rstrip("/")}) for member in members}


def rules_of(config: ClusterConfig, trainer: TrainerConfig) -> Settings:
    """The rules of the policy: those of [cluster], else those of [trainer]."""
    return Settings(
        batch=config.batch or trainer.groups_per_round,
        max_staleness=trainer.max_staleness if config.max_staleness is None else config.max_staleness,
        train_members=config.train_members,
        in_flight_share=config.in_flight_share,
        when=config.round_when,
        least=config.round_least,
        tokens=config.round_tokens or 0.0,
        seconds=config.round_s or 0.0,
        serve_share=config.serve_share,
        oversample=config.oversample,
        stragglers=config.stragglers,
        refill=config.refill,
    )


def new_member(member: ClusterMember) -> Member:
    """A member as policies see it, without a role."""
    return Member(
        name=member.name,
        tags=frozenset(member.tags),
        kind=member.kind,
        train_priority=member.priority,
        kv_tokens=member.kv_tokens,
    )


def row_of(member: ClusterMember) -> MemberRow:
    """A member as the catalog has it."""
    return MemberRow(
        name=member.name,
        url=member.url,
        tags=[tag.value for tag in member.tags],
        kind=member.kind,
        memory_gb=member.memory_gb,
        train_priority=member.priority,
        phase="waits",
    )


def check_members(members: dict[str, ClusterMember], config: ClusterConfig, trainer: TrainerConfig, level: str) -> None:
    """Raise `UsageError` where the settings promise what these members cannot keep."""
    if trainer.router_url is None:
        raise UsageError(
            "weir train takes engines out of the router's rotation, and there is no router: leave proxy.upstream_url "
            "and trainer.router_url unset, or set them to the router's address"
        )
    if trainer.takes_turns:
        raise UsageError(
            "placement.colocated: engines and rounds take the same devices in turns, as `weir round` does it for all "
            "engines at once; weir train moves them one by one, and no engine would give its memory back. Run `weir "
            "round --loop` beside `weir run --continuous`, or give engines and rounds devices of their own by "
            "placement.serve and placement.train"
        )
    if trainer.publish.by_ranks:
        raise UsageError(
            "publish.by_ranks: weir train brings each version to engines one by one, some of them once its ranks train "
            "the next, and so sends from the version's folder: remove by_ranks, or run `weir round --loop` beside "
            "`weir run --continuous`"
        )
    for name, member in members.items():
        check_cores(name, member.cores)
    both = [name for name, member in members.items() if len(member.tags) > 1]
    if both and level != "tokens":
        raise UsageError(
            f"{', '.join(both)} hand their calls over before they train, which needs proxy.level = 'tokens' and not "
            f"{level!r}: set it, or give each member one tag"
        )
    if config.serve_share and level != "tokens":
        raise UsageError(
            f"cluster.serve_share: engines load weights in turns and hand their calls over, which needs proxy.level = "
            f"'tokens' and not {level!r}: set it, or leave serve_share unset"
        )
    if config.serve_share and not _train_beside(members, config):
        raise UsageError(
            "cluster.serve_share keeps the only engine for calls with the tag serve, and no other member trains: name "
            "one with the tag train, or leave serve_share unset"
        )
    if config.max_hold_s is not None and not config.serve_share and not _stay(members, config):
        raise UsageError(
            f"cluster.max_hold_s = {config.max_hold_s:g}, but {config.policy} with train_members = "
            f"{config.train_members} takes every engine for training, and calls would wait for the whole of it: name a "
            "member with the tag rollout alone, lower train_members, or leave max_hold_s unset"
        )


def _train_beside(members: dict[str, ClusterMember], config: ClusterConfig) -> bool:
    """Whether a member trains while calls with the tag `serve` have their engines."""
    state = State(settings=Settings(batch=1, serve_share=config.serve_share))
    state.members = {name: new_member(member) for name, member in members.items()}
    return bool(trainers(state))


def _stay(members: dict[str, ClusterMember], config: ClusterConfig) -> bool:
    """Whether an engine is left in rotation while the policy trains."""
    state = State(settings=Settings(batch=1, train_members=config.train_members))
    state.members = {name: new_member(member) for name, member in members.items()}
    able = {name for name, member in members.items() if Tag.TRAIN in member.tags}
    taken = able if config.policy == "sync_colocated" else {*trainers(state, apart=config.policy != "tags")}
    return any(Tag.ROLLOUT in member.tags and name not in taken for name, member in members.items())
