"""The whole loop from nothing: a small model is made, cold-started, used by agents while rounds train it, and measured.

Everything is made under one folder, which `weir up --config FOLDER/weir.toml` and `weir sql` can continue with.
Only the sizes are special to the demo: servers, agents' runner, trainer and store are the ones that users run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from weir.agents.corpus import NUM_EXAMPLES, corpus_texts, make_corpus, write_corpus
from weir.agents.family import family_tasks, write_family
from weir.engine.config import EngineConfig
from weir.kernel_eval.client import KernelTask
from weir.kernel_eval.config import KernelEvalConfig
from weir.proxy.config import ProxyConfig
from weir.scripts.demo_loop.agents import BackgroundAgents, background_agents, heldout_correctness
from weir.scripts.demo_loop.live import cluster_toml, run_live
from weir.scripts.demo_loop.model import train_tokenizer, write_model
from weir.scripts.demo_loop.progress import AFTER, BEFORE, COLD_START, MODEL, REPORT, START, TRAINING, Progress, Say
from weir.scripts.launch.errors import CommandError, UsageError
from weir.scripts.launch.fleet import fleet, served_model
from weir.scripts.launch.ports import session_listens
from weir.scripts.launch.resolve import agents_config, chat_renderer, trainer_config
from weir.scripts.launch.servers import Server, free_ports_in_row, running, started, wait_ready
from weir.scripts.launch.settings import RouterConfig, Settings, load_settings
from weir.scripts.live.command import describe as describe_live
from weir.scripts.live.controller import Report
from weir.store.catalog.catalog import Catalog
from weir.trainer.settings.algorithms import AlgorithmName
from weir.trainer.trainer import RoundReport, Trainer
from weir.trainer.versions.version_folder import version_path

CONFIG_FILE = "weir.toml"
WINDOW = 6  # rounds that the first and the last mean reward are taken over
HELDOUT_SAMPLES = 8
SFT_LR = 2e-3  # of a model of two million parameters with random weights
SFT_BATCH_SIZE, SFT_EPOCHS = 4, 2

# What an algorithm needs besides its defaults at this size.
SETTINGS = {"dr_grpo": "loss_constant = 160\n", "ppo": "critic_lr = 1e-3\n"}


class Goal(NamedTuple):
    """What a run must reach to have learned."""

    reward_gain: float
    heldout_factor: float


GOAL = Goal(0.25, 2.0)
GOAL_OF_OTHERS = Goal(0.2, 1.5)  # than the default, whose settings are hardly tuned to the demo


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What a run of the demo may vary."""

    folder: Path
    seed: int = 0
    rounds: int = 70
    algorithm: AlgorithmName = "dapo"
    shuffle_rewards: bool = False
    controller: bool = False  # one controller in place of rounds beside agents


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The figures that `weir demo --json` prints."""

    learned: bool
    reward_first: float
    reward_last: float
    heldout_before: float
    heldout_after: float
    seconds: float
    versions: int
    calls: int
    calls_spanning_versions: int
    seed: int
    algorithm: str
    rounds_s: float = 0.0  # from the first group to the last round's end
    cpu_s: float = 0.0  # of all processes
    idle_share: float | None = None  # of members, under a controller
    idle: dict[str, float] = field(default_factory=dict)  # shares of all members' time, by cause
    overlapped_s: dict[str, float] = field(default_factory=dict)  # of judging, state and weights, beside it
    staleness: dict[int, int] = field(default_factory=dict)  # groups that were so many versions old
    refilled: int = 0  # groups that were replaced, because their rewards are all alike
    aborted: int = 0  # groups that were ended, because enough others were ready

    def as_json(self) -> str:
        """One line of JSON."""
        of_causes = {"idle": self.idle, "overlapped_s": self.overlapped_s}
        rounded = {name: {cause: round(value, 4) for cause, value in of.items()} for name, of in of_causes.items()}
        figures = asdict(self) | rounded
        return json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()})


def run_demo(options: DemoOptions, progress: Progress) -> DemoResult:
    """Run the demo; the result says whether the model learned. Raises `CommandError` where a part fails."""
    started = time.monotonic()
    progress.begin(MODEL)
    prepare(options, progress.say)
    heldout = family_tasks("heldout")
    with contextlib.ExitStack() as servers:
        judge = start_judge(options, servers)
        cold_start(load_settings(options.folder / CONFIG_FILE), options, progress)
        progress.begin(START)
        progress.say("Starting engines, the router and the proxy; the kernel-evaluation server runs already …")
        settings = start_servers(options, judge, servers)
        heldout_before = measure(heldout, settings, BEFORE, progress)
        began = time.monotonic()
        rewards, live = (learn_live if options.controller else learn)(settings, options, progress)
        rounds_s = time.monotonic() - began
        heldout_after = measure(heldout, settings, AFTER, progress)
    progress.begin(REPORT)
    reward_first, reward_last = statistics.fmean(rewards[:WINDOW]), statistics.fmean(rewards[-WINDOW:])
    return DemoResult(
        learned=has_learned(reward_first, reward_last, heldout_before, heldout_after, goal_of(options.algorithm)),
        reward_first=reward_first,
        reward_last=reward_last,
        heldout_before=heldout_before,
        heldout_after=heldout_after,
        seconds=time.monotonic() - started,
        rounds_s=rounds_s,
        seed=options.seed,
        algorithm=options.algorithm,
        cpu_s=cpu_s(),
        **({} if live is None else live_figures(live)),
        **count_calls(settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJudge:
    """The kernel-evaluation server, which may not be ready yet."""

    server: Server
    process: subprocess.Popen[bytes]
    port: int


def start_judge(options: DemoOptions, servers: contextlib.ExitStack) -> StartedJudge:
    """Start the kernel-evaluation server: it imports torch several times while the cold start leaves a core idle.

    Raises `ServerFailed` if it does not listen.
    """
    with choosing_ports():
        config_path = write_config(options)
        settings = load_settings(config_path)
        (server,) = (one for one in fleet(settings, config_path) if one.name == "kernel-eval")
        (process,) = servers.enter_context(started([server]))
        while process.poll() is None and not session_listens(process.pid, settings.kernel_eval.port):
            time.sleep(0.1)
        if process.poll() is not None:
            wait_ready([server], [process])  # raises with the reason
    return StartedJudge(server=server, process=process, port=settings.kernel_eval.port)


def start_servers(options: DemoOptions, judge: StartedJudge, servers: contextlib.ExitStack) -> Settings:
    """Start the other servers, on ports that are free now: one that was free before the cold start may be taken.

    Raises `ServerFailed` where one does not start.
    """
    with choosing_ports():
        config_path = write_config(options, judge_port=judge.port)
        settings = load_settings(config_path)
        others = [server for server in fleet(settings, config_path) if server.name != judge.server.name]
        servers.enter_context(running(others))
    wait_ready([judge.server], [judge.process])
    return settings


@contextlib.contextmanager
def choosing_ports() -> Iterator[None]:
    """Demos of one user on one machine choose ports and start servers one after the other."""
    with (Path(tempfile.gettempdir()) / f"weir-demo-{os.getuid()}.lock").open("w") as ports:
        fcntl.flock(ports, fcntl.LOCK_EX)
        yield


def known_algorithm(name: str) -> AlgorithmName:
    """The name of an algorithm. Raises `UsageError` for another word."""
    for known in get_args(AlgorithmName):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"there is no algorithm {name}; there are {', '.join(get_args(AlgorithmName))}")


def goal_of(algorithm: str) -> Goal:
    """What a run with an algorithm must reach."""
    return GOAL if algorithm == "dapo" else GOAL_OF_OTHERS


def has_learned(
    reward_first: float, reward_last: float, heldout_before: float, heldout_after: float, goal: Goal
) -> bool:
    """Whether the reward and held-out correctness rose as far as the goal says."""
    gained = round(reward_last - reward_first, 6) >= goal.reward_gain
    return gained and heldout_after > 0 and heldout_after >= goal.heldout_factor * heldout_before


def prepare(options: DemoOptions, say: Say) -> None:
    """Fill the demo's folder: corpus, tasks, tokenizer, untrained model. Raises `CommandError` if it is not empty."""
    folder = options.folder
    if folder.exists() and any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; name another folder with --dir, or delete it to start again")
    write_corpus(folder / "corpus.jsonl", options.seed)
    write_family(folder / "tasks")
    tokenizer = train_tokenizer(corpus_texts(make_corpus(options.seed)), folder / "model")
    size = write_model(folder / "model", tokenizer, options.seed)
    say(f"Made a tokenizer of {len(tokenizer)} pieces and a Qwen3 of {size / 1e6:.1f}M parameters in {folder}")


def write_config(options: DemoOptions, *, judge_port: int | None = None) -> Path:
    """Write the demo's weir.toml, with ports that are free now and that of a judge that runs. Returns its path."""
    config_path = options.folder / CONFIG_FILE
    config_path.write_text(demo_toml(options, judge_port=judge_port))
    return config_path


def demo_toml(options: DemoOptions, *, judge_port: int | None = None) -> str:
    """The demo's weir.toml: sizes for two cores, and the usual ports where they are free."""
    folder = options.folder.absolute()
    first_engine = free_ports_in_row(num_engines(options), wanted=EngineConfig().port)
    router = free_ports_in_row(2, wanted=RouterConfig().port)
    proxy = free_ports_in_row(1, wanted=ProxyConfig().port)
    kernel_eval = judge_port or free_ports_in_row(1, wanted=KernelEvalConfig().port)
    hooks = (
        'hooks = { normalize_group_data = "weir.trainer.hooks:shuffle_rewards" }\n' if options.shuffle_rewards else ""
    )
    return f"""\
[store]
root = "{folder / "store"}"

[model]
path = "{folder / "model"}"
name = "weir"

[engine]
count = {num_engines(options)}
port = {first_engine}
max_running = 32
seed = {options.seed}

[router]
port = {router}
prometheus_port = {router + 1}

[proxy]
port = {proxy}
thinking = false

[kernel_eval]
port = {kernel_eval}

[agents]
samples = 8
concurrency = 32
turns = 2
max_tokens = 160
feedback_lines = 1

[trainer]
algorithm = "{options.algorithm}"
seed = {options.seed}
groups_per_round = 8
min_groups = 8
num_correct_trials = 2
judge_use_cache = true
lr = 2e-4
max_staleness = 4
{SETTINGS.get(options.algorithm, "")}{hooks}{cluster_toml(first_engine) if options.controller else ""}"""


def cold_start(settings: Settings, options: DemoOptions, progress: Progress) -> None:
    """Supervised training on the corpus, of which about a third is right."""
    from weir.trainer.settings.config import SftConfig
    from weir.trainer.sft.cold_start import run_sft

    config = SftConfig(seed=options.seed, lr=SFT_LR, batch_size=SFT_BATCH_SIZE, epochs=SFT_EPOCHS)
    progress.begin(COLD_START, config.epochs * math.ceil(NUM_EXAMPLES / config.batch_size), "steps")
    progress.say("Cold start: learning the form of a kernel from a corpus of which about a third is right …")
    assert settings.model.path is not None
    report = run_sft(
        config,
        data=options.folder / "corpus.jsonl",
        model=settings.model.path,
        out=version_path(settings.store.folder, 0),
        renderer=chat_renderer(settings.model.path, settings),
        on_step=progress.advance,
    )
    progress.say(f"Cold start took {report.seconds:.0f} s, loss {report.losses[0]:.2f} → {report.losses[-1]:.2f}")


def measure(tasks: list[KernelTask], settings: Settings, when: str, progress: Progress) -> float:
    """Held-out correctness at temperature 1."""
    progress.begin(when, len(tasks) * HELDOUT_SAMPLES, "answers")
    share = heldout_correctness(tasks, agents_config(settings, {}), HELDOUT_SAMPLES, progress.advance)
    before_or_after = when.removeprefix("measuring ")
    progress.say(
        f"Held-out kernels that are right {before_or_after}: {share:.0%} of {len(tasks)} tasks × {HELDOUT_SAMPLES}"
    )
    return share


def learn(settings: Settings, options: DemoOptions, progress: Progress) -> tuple[list[float], None]:
    """Rounds, while agents keep working; the mean reward of each.

    Agents may start as many groups as a round took as soon as it has trained, so that they work while it publishes.
    """
    num_groups = settings.trainer.groups_per_round
    rewards: list[float] = []
    log_path = settings.store.folder / "logs" / "agents.log"
    progress.begin(TRAINING, options.rounds, "rounds")
    with background_agents(options.folder / CONFIG_FILE, options.seed, log_path) as agents:
        trainer = Trainer(
            trainer_config(settings),
            settings.store,
            model_path=served_model(settings),
            on_step=lambda step: agents.allow(num_groups) if step == "trained" else None,
        )
        with contextlib.closing(trainer):
            agents.allow(2 * num_groups)
            while len(rewards) < options.rounds:
                metrics = next_round(trainer, agents).metrics
                rewards.append(metrics["reward_mean"])
                progress.advance(len(rewards), f"reward {statistics.fmean(rewards[-5:]):.2f}")
                if len(rewards) % 5 == 0:
                    progress.say(f"{describe(len(rewards), options.rounds, rewards, metrics)}  {progress.left()}")
    return rewards, None


def learn_live(settings: Settings, options: DemoOptions, progress: Progress) -> tuple[list[float], Report | None]:
    """The same rounds under a controller; the mean reward of each, and what members did meanwhile."""
    progress.begin(TRAINING, options.rounds, "rounds")
    live = run_live(settings, options.folder, options.seed, options.rounds, progress.advance)
    with contextlib.closing(Catalog.open(settings.store)) as catalog:
        rewards = [(row.metrics or {})["reward_mean"] for row in catalog.rounds()]
    for line in describe_live(live).splitlines():
        progress.say(line)
    return rewards, live


def live_figures(report: Report) -> dict[str, Any]:
    """What the figures have of a run under a controller."""
    return {
        "idle_share": report.idle_share,
        "idle": dict(sorted(report.all_shares.items(), key=lambda one: -one[1])),
        "overlapped_s": dict(report.overlapped_s),
        "staleness": dict(report.staleness),
        "refilled": report.refilled,
        "aborted": report.aborted,
    }


def num_engines(options: DemoOptions) -> int:
    """One more with a controller, which takes two of them for training."""
    return 3 if options.controller else 2


def next_round(trainer: Trainer, agents: BackgroundAgents) -> RoundReport:
    """Train on the next groups as soon as a round's worth of them is ready."""
    while (report := trainer.run_round()) is None:
        agents.allow(0)
        time.sleep(0.05)
    return report


def describe(done: int, total: int, rewards: list[float], metrics: dict[str, Any]) -> str:
    """One line on the last rounds."""
    mean = statistics.fmean(rewards[-5:])
    bar = "█" * round(20 * mean)
    return f"round {done:>3}/{total}  reward {mean:.2f} {bar:<20}  correct {metrics['correct']:.0%}"


def cpu_s() -> float:
    """Processor seconds of this process and of all that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def count_calls(settings: Settings) -> dict[str, Any]:
    """How much was recorded, asked of the store."""
    from weir.store.reader import connect

    with connect(settings.store) as db:
        calls, spanning = db.sql("select count(*), count(*) filter (num_versions > 1) from calls").fetchall()[0]
        (versions,) = db.sql("select count(distinct version) from tokens").fetchall()[0]
    return {"calls": calls, "calls_spanning_versions": spanning, "versions": versions}
