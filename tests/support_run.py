"""How a whole run of the tests goes: which files come late, what is said at once, and what a limit of time leaves out.

pytest-xdist hands out whole files and, by `--no-loadscope-reorder`, keeps the order that is made here: nearly all tests
are in files that need seconds, so that even a slow machine comes to them. Then come the files that need minutes, and at
the end those that repeat what others show once.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from _pytest.terminal import TerminalReporter

# Files that need minutes, the most needed first.
LONG = (
    "tests/first_day/test_sglang.py",
    "tests/scripts/live/test_controller.py",
    "tests/exactness/test_exactness.py",
    "tests/trainer/megatron/test_rounds.py",
    "tests/exactness/test_structured.py",
    "tests/trainer/learner/test_rank_files.py",
    "tests/exactness/test_real_model.py",
    "tests/exactness/test_passthrough.py",
    "tests/agents/test_task_rewards.py",
    "tests/ui/test_rounds.py",
    "tests/scripts/demo_loop/test_run.py",
    "tests/proxy/test_workers.py",
    "tests/agents_from_pypi/test_command_line_agents.py",
    "tests/trainer/megatron/test_state.py",
    "tests/trainer/megatron/test_layouts.py",
    "tests/proxy/conversation/test_prompt_logprobs.py",
    "tests/agents_from_pypi/test_mini_swe_agent.py",
    "tests/ui/test_demo.py",
    "tests/ui/web/test_addresses.py",
    "tests/engine/test_against_sglang.py",
    "tests/scripts/live/test_random_kills.py",
    "tests/scripts/live/test_sglang.py",
    "tests/trainer/rounds/test_real_model.py",
    "tests/trainer/learner/test_torchrun.py",
    "tests/trainer/learner/test_distributed.py",
    "tests/scripts/models/test_check.py",
)
# Files and folders that a run on a slow machine can do without, the least needed last.
LAST = (
    "tests/trainer/sft/",
    "tests/trainer/test_crashes.py",
    "tests/trainer/launch/",
    "tests/kernel_eval/machines/",
    "tests/ui/test_hostile_text.py",
    "tests/ui/test_pictures.py",
    "tests/trainer/regression/",
    "tests/scripts/live/processes/",
    "tests/scripts/launch/test_affinity.py",
    "tests/scripts/bench/",
)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The same tests: those of other files as they were collected, then those of `LONG` and of `LAST`."""
    late = (*LONG, *LAST)

    def place(item: pytest.Item) -> int:
        path = item.nodeid.partition("::")[0]
        return next((1 + number for number, name in enumerate(late) if path.startswith(name)), 0)

    return sorted(items, key=place)


class TimeLimit:
    """Skips each test that has not begun `limit_s` seconds after the run did, and says how many of which files."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.began = time.monotonic()
        self.reason = f"not begun within the {limit_s:g} s of --begin-within"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() - self.began > self.limit_s:
            pytest.skip(self.reason)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        skipped = [
            report for report in terminalreporter.stats.get("skipped", []) if self.reason in str(report.longrepr)
        ]
        files = Counter(report.nodeid.partition("::")[0] for report in skipped)
        if files:
            terminalreporter.section(f"{files.total()} tests were {self.reason}", red=True)
            for path, count in files.items():
                terminalreporter.write_line(f"{count:5} {path}")


class FailuresAtOnce:
    """Prints each failure when it happens: a run that is ended from outside prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\n{report.when} of {report.nodeid} failed", red=True)
            reporter.write_line(report.longreprtext)
