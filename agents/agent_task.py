"""Tasks for agents of any kind: a prompt, files for the working folder, a setup command, and how it is rewarded.

A `.toml` file is one task, named by the file; a `.jsonl` file holds one a line. `load_all_tasks` also reads the kernel
tasks of `tasks.py`, which need nothing of this. Invariant: task files are parsed only, never imported or run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from weir.agents.errors import TaskError
from weir.agents.tasks import check_unique, load_tasks
from weir.kernel_eval.client import KernelTask

EXAMPLE = "docs/tasks.md has an example"


class RewardSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One named reward of a session, from exactly one of `command`, `function`, `kernel`, `url` and `judge_url`.

    Attributes:
        command: A command in the working folder, after the agent has ended and the hidden files are there.
        result: What of the command counts: 1 for exit code 0, else 0; the number in its last line; or the share of
            passed tests in the JUnit XML that it writes to $WEIR_JUNIT.
        num_tests: Tests that the JUnit XML has to name; of fewer the missing ones count as failed.
        function: Import path "pkg.mod:name" of a function of a `SessionResult`.
        kernel: File of the working folder with the candidate for the kernel judge; the task has `reference_src`.
        url: URL of a reward model, which gets the answer as the trainer's reward models do.
        judge_url: base_url of an OpenAI-compatible server whose model judges the answer.
        judge_model: Its name there.
        judge_template: The judge's prompt, with {prompt} and {answer}.
        judge_pattern: Regular expression whose first group is the number in the judge's answer; the last match counts.
        judge_key_variable: Environment variable of `weir run` that holds the key of the reward model or the judge.
        answer: File of the working folder that holds the answer; None: the end of what the agent printed.
        low, high: What the number is mapped from, to 0 and 1; numbers outside are clipped.
        timeout_s: Time limit of the command, the function or the request.
    """

    command: str | None = None
    result: Literal["exit_code", "number", "junit"] = "exit_code"
    num_tests: int | None = None
    function: str | None = None
    kernel: str | None = None
    url: str | None = None
    judge_url: str | None = None
    judge_model: str = "default"
    judge_template: str | None = None
    judge_pattern: str = r"(-?\d+(?:\.\d+)?)"
    judge_key_variable: str | None = None
    answer: str | None = None
    low: float | None = None
    high: float | None = None
    timeout_s: float = 300.0

    @property
    def source(self) -> str:
        """Where the reward comes from: the name of the field that is set."""
        return next(name for name in SOURCES if getattr(self, name) is not None)

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a reward has exactly one of {', '.join(SOURCES)}; here: {', '.join(given) or 'none'}")
        if self.judge_url is not None and self.judge_template is None:
            raise ValueError("judge_url needs judge_template, a text with {prompt} and {answer}")
        if (self.low is None) != (self.high is None) or (self.low is not None and self.low >= (self.high or 0.0)):
            raise ValueError("low and high are given together, low below high")


SOURCES = ("command", "function", "kernel", "url", "judge_url")


class AgentTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for any agent.

    Attributes:
        files: Text files of the working folder, by their relative paths.
        folder: A folder whose content is copied into the working folder, relative to the task file.
        hidden: Text files that are put into the working folder after the agent has ended, for the rewards.
        hidden_folder: A folder of hidden files, relative to the task file.
        removed: Paths that are removed before the rewards, e.g. a conftest.py that the agent could have planted.
        setup: Command in the working folder before the agent starts, by /bin/sh.
        rewards: The rewards, by name; `[trainer.rewards] NAME = { stored = true }` trains on one.
        reference_src: The reference for the kernel judge, in KernelBench's form.
    """

    task_id: str
    prompt: str
    split: Literal["train", "heldout"] = "train"
    family: str = ""
    files: dict[str, str] = {}
    folder: str | None = None
    hidden: dict[str, str] = {}
    hidden_folder: str | None = None
    removed: list[str] = []
    setup: str | None = None
    setup_timeout_s: float = 300.0
    rewards: dict[str, RewardSpec] = {}
    reference_src: str | None = None

    def __post_init__(self) -> None:
        for name, reward in self.rewards.items():
            if reward.kernel is not None and self.reference_src is None:
                raise ValueError(f"the reward {name} asks the kernel judge, which needs reference_src")

    def registered(self) -> dict[str, Any]:
        """What is kept of it with its group: everything but the content of files."""
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return {
            **{name: value for name, value in kept.items() if name not in ("files", "hidden", "reference_src")},
            "files": sorted(self.files),
            "hidden": sorted(self.hidden),
            "split": self.split,
        }


Task = KernelTask | AgentTask


def as_registered(task: Task) -> dict[str, Any]:
    """A task as it is registered with its group."""
    if isinstance(task, AgentTask):
        return task.registered()
    kept: dict[str, Any] = msgspec.to_builtins(task)
    return kept


def load_all_tasks(path: Path) -> list[Task]:
    """The tasks of a file, or of all `*.py`, `*.jsonl` and `*.toml` files directly in a folder, by their names.

    Raises `TaskError` for a path that holds no task, a file that is not a task, or a task id that appears twice.
    """
    files = [path] if path.is_file() else sorted(p for p in path.glob("*") if p.suffix in (".py", ".jsonl", ".toml"))
    if not files:
        raise TaskError(f"no tasks in {path}: expected *.toml, *.py or *.jsonl files of tasks; {EXAMPLE}")
    tasks = [task for file in files for task in _read(file)]
    check_unique(tasks, path)
    return tasks


def _read(file: Path) -> list[Task]:
    if file.suffix == ".toml":
        return [_from_toml(file)]
    if file.suffix == ".jsonl" and _holds_agent_tasks(file):
        lines = file.read_text().splitlines()
        return [_from_line(line, file, number) for number, line in enumerate(lines, 1) if line.strip()]
    return list(load_tasks(file))


def _holds_agent_tasks(file: Path) -> bool:
    """Whether the first line is a task for any agent: it has rewards or files, which kernel tasks lack."""
    try:
        first = next((line for line in file.read_text().splitlines() if line.strip()), "")
        fields = msgspec.json.decode(first)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return False  # what reads kernel tasks says why
    return isinstance(fields, dict) and bool({"rewards", "files", "folder", "setup"} & set(fields))


def _from_toml(file: Path) -> AgentTask:
    try:
        fields = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TaskError(f"cannot read the task file {file}: {error}") from error
    return _converted({"task_id": file.stem} | fields, file, str(file))


def _from_line(line: str, file: Path, number: int) -> AgentTask:
    try:
        fields = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise TaskError(f"{file}:{number} is not JSON: {error}") from error
    return _converted(fields, file, f"{file}:{number}")


def _converted(fields: Any, file: Path, where: str) -> AgentTask:
    try:
        task = msgspec.convert(fields, AgentTask)
    except msgspec.ValidationError as error:
        raise TaskError(f"{where} is not a task: {error}; {EXAMPLE}") from error
    places = {name: getattr(task, name) for name in ("folder", "hidden_folder")}
    absolute = {name: str((file.parent / place).resolve()) for name, place in places.items() if place is not None}
    for name, place in absolute.items():
        if not Path(place).is_dir():
            raise TaskError(f"{where}: {name} = {places[name]!r} is no folder beside the task file")
    return msgspec.structs.replace(task, **absolute)
