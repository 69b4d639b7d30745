"""The demo's verdict and what it makes; the whole of it is run by `./scripts/demo`."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from weir.agents.corpus import draw_kernel
from weir.agents.family import Kind, members
from weir.agents.tasks import load_tasks
from weir.scripts.demo_loop import run
from weir.scripts.demo_loop.progress import Progress, expected_s
from weir.scripts.demo_loop.run import (
    DemoOptions,
    DemoResult,
    cold_start,
    demo_toml,
    goal_of,
    has_learned,
    known_algorithm,
    learn_live,
    live_figures,
    prepare,
    start_judge,
    start_servers,
    write_config,
)
from weir.scripts.launch.errors import CommandError, UsageError
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.controller import Report
from weir.trainer.settings.algorithms import AlgorithmName
from weir.trainer.versions.version_folder import version_path


@pytest.mark.parametrize(
    ("rewards", "heldout", "learned"),
    [
        ((0.3, 0.55), (0.25, 0.5), True),
        ((0.3, 0.54), (0.25, 0.5), False),
        ((0.3, 0.55), (0.25, 0.49), False),
        ((0.3, 0.9), (0.0, 0.0), False),
        ((0.3, 0.9), (0.0, 0.2), True),
    ],
)
def test_learning_means_a_rise_in_reward_and_twice_the_heldout_correctness(
    rewards: tuple[float, float], heldout: tuple[float, float], learned: bool
) -> None:
    assert has_learned(*rewards, *heldout, goal_of("dapo")) is learned


def test_less_is_asked_of_algorithms_that_the_demo_was_not_made_for() -> None:
    figures = (0.3, 0.5, 0.25, 0.4)
    assert has_learned(*figures, goal_of("gspo"))
    assert not has_learned(*figures, goal_of("dapo"))


def test_the_figures_are_one_line_of_json_with_the_documented_keys() -> None:
    figures = json.loads(
        DemoResult(
            learned=True,
            reward_first=0.1,
            reward_last=0.5,
            heldout_before=0.2,
            heldout_after=0.6,
            seconds=1.23456,
            rounds_s=0.98765,
            versions=3,
            calls=4,
            calls_spanning_versions=1,
            seed=0,
            algorithm="dapo",
            idle={"switch": 0.123456},
            overlapped_s={"judging": 7.654321},
        ).as_json()
    )
    assert {"reward_first", "reward_last", "heldout_before", "heldout_after", "seconds"} <= set(figures)
    assert {"versions", "calls", "calls_spanning_versions"} <= set(figures)
    assert (figures["seconds"], figures["rounds_s"]) == (1.2346, 0.9877)
    assert (figures["idle"], figures["overlapped_s"]) == ({"switch": 0.1235}, {"judging": 7.6543})


LIVE = Report(
    rounds=2,
    version=2,
    shares={"only": {"generate": 0.75, "no_samples": 0.25}},
    all_shares={"no_samples": 0.25, "generate": 0.75},
    overlapped_s={"judging": 1.5},
    staleness={0: 6, 1: 2},
    refilled=3,
    aborted=4,
)


def test_under_a_controller_the_demo_says_all_that_the_controller_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    options = DemoOptions(folder=tmp_path / "run", controller=True)
    options.folder.mkdir()
    monkeypatch.setattr(run, "run_live", lambda *_: LIVE)
    rewards, live = learn_live(load_settings(write_config(options)), options, Progress(expected_s(2), said.append))
    assert (rewards, live) == ([], LIVE)
    assert said == [
        "2 rounds, version 2; 6 groups 0 versions old, 2 groups 1 versions old; idle 25%",
        "  beside the work of members: judging 1.5 s",
        "  3 groups were replaced: their rewards are all alike",
        "  4 groups were aborted: enough others were ready",
        "  only: generate 75%; idle: no_samples 25%",
    ]
    figures = live_figures(LIVE)
    assert (figures["refilled"], figures["aborted"], figures["staleness"]) == (3, 4, {0: 6, 1: 2})
    assert (figures["idle_share"], list(figures["idle"])) == (0.25, ["generate", "no_samples"])


def test_the_demo_makes_a_folder_that_the_other_commands_can_go_on_with(tmp_path: Path) -> None:
    said: list[str] = []
    options = DemoOptions(folder=tmp_path / "run")
    prepare(options, said.append)
    settings = load_settings(write_config(options))
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    assert {task.split for task in load_tasks(tmp_path / "run" / "tasks")} == {"train", "heldout"}
    assert settings.engine.count == 2 and settings.model.name == "weir"
    assert "1.7M parameters" in said[0]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CommandError, match="is not empty; name another folder with --dir"):
        prepare(DemoOptions(folder=tmp_path), lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("algorithm", get_args(AlgorithmName))
def test_every_algorithm_has_settings_that_are_accepted(tmp_path: Path, algorithm: AlgorithmName) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(demo_toml(DemoOptions(folder=tmp_path, algorithm=known_algorithm(algorithm))))
    assert load_settings(file).trainer.algorithm == algorithm


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no algorithm a2c; there are grpo"):
        known_algorithm("a2c")


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    options = DemoOptions(folder=tmp_path)
    port = load_settings(write_config(options)).proxy.port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        assert load_settings(write_config(options)).proxy.port != port


def test_demos_that_start_in_one_moment_take_ports_of_their_own(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def serve(name: str) -> set[int]:
        options = DemoOptions(folder=tmp_path / name)
        prepare(options, lambda _: None)
        both.wait()
        with contextlib.ExitStack() as servers:
            settings = start_servers(options, start_judge(options, servers), servers)
            both.wait()
            proxy, judge = settings.proxy.port, settings.kernel_eval.port
            return {settings.engine.port, settings.engine.port + 1, settings.router.port, proxy, judge}

    with ThreadPoolExecutor(2) as demos:
        one, other = demos.map(serve, ("one", "other"))
    assert len(one | other) == 10


def test_the_cold_start_teaches_the_model_to_read_its_prompt(tmp_path: Path) -> None:
    """Rounds can learn from there on. A model that writes kernels without looking at the prompt is right by chance."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = DemoOptions(folder=tmp_path / "run")
    prepare(options, say=lambda _: None)
    settings = load_settings(write_config(options))
    cold_start(settings, options, Progress(expected_s(options.rounds), lambda _: None))
    folder = version_path(settings.store.folder, 0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    shares = []
    for member in members():
        if member.split == "heldout" and member.kind is not Kind.FUSED:
            head, _, _ = draw_kernel(member, random.Random(0), faults=0.0)[0].partition(f"{member.scale}.0")
            asked = tokenizer.apply_chat_template(
                [{"role": "user", "content": member.prompt}], add_generation_prompt=True, tokenize=False
            )
            [number] = tokenizer.encode(f"{member.scale}.0", add_special_tokens=False)
            with torch.no_grad():
                logits = model(tokenizer(asked + head, return_tensors="pt").input_ids).logits[0, -1]
            shares.append(float(logits.softmax(-1)[number]))
    assert statistics.fmean(shares) > 0.5
