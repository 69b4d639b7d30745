"""Turns that arrive where their parent is not cached: at another process, after a restart, after compaction."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_proxy import running_proxy
from support_router import Router
from support_scripted_engine import Script, ScriptedEngine
from support_way import Way, ids_of

from weir.store.config import StoreConfig
from weir.store.log.segment_format import list_segments, read_segment
from weir.store.maintenance.compact import compact
from weir.store.records.call_record import CallRecord, Stitch

COMMAND = "import typer; from weir.scripts.cli.commands.servers import proxy; typer.run(proxy)"
USER: Any = {"role": "user", "content": "Hi"}
ODD = [token for letter in "Hello there" for token in ids_of(letter)[:-1]] + ids_of("")  # no tokenizer gives these


class Process:
    """One `weir proxy` process over a store of its test."""

    def __init__(self, model: Path, root: Path, upstream: str) -> None:
        options = ["--upstream", upstream, "--model", str(model), "--root", str(root), "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root.parent,
            env=os.environ,
        )
        assert self.process.stdout is not None
        found = re.match(r"base_url (\S+)/v1 ", self.process.stdout.readline())
        assert found
        self.url = found[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> Iterator[Callable[[], Process]]:
    """Starts proxy processes over one store."""
    started: list[Process] = []

    def begin() -> Process:
        started.append(Process(tiny_model_dir, tmp_path / "store", scripted[1].url))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def ask(url: str, messages: list[Any], path: str = "/v1") -> Any:
    client = openai.OpenAI(base_url=url + path, api_key="agent", max_retries=0, timeout=60)
    answer = client.chat.completions.create(model="weir", messages=messages)
    return answer.choices[0].message.model_dump(exclude_none=True)


def records(root: Path) -> list[CallRecord]:
    found = [record for s in list_segments(root / "log") for record in read_segment(s.path).records]
    return sorted(found, key=lambda record: record.started_us)


def assert_bridged(calls: list[CallRecord]) -> None:
    assert [call.stitch for call in calls] == [Stitch.NEW_ROOT] + [Stitch.BRIDGED] * (len(calls) - 1)
    for earlier, later in itertools.pairwise(calls):
        assert later.prompt_ids.startswith(earlier.prompt_ids + earlier.output_ids)
        assert (later.stitch_call, later.session_id) == (earlier.call_id, earlier.session_id)


def test_turns_that_go_to_two_processes_by_turns_are_all_bridged(
    start: Callable[[], Process], scripted: tuple[ScriptedEngine, Router], tmp_path: Path
) -> None:
    scripted[0].script = lambda _: Script(ids=ODD)
    processes = [start(), start()]
    messages: list[Any] = []
    for turn in range(6):
        messages.append({"role": "user", "content": f"Turn {turn}"})
        messages.append(ask(processes[turn % 2].url, messages))
    calls = records(tmp_path / "store")
    assert len(calls) == 6
    assert_bridged(calls)
    assert len({segment.writer for segment in list_segments(tmp_path / "store" / "log")}) == 2
    shown = httpx.get(processes[1].url + "/metrics", timeout=120).text
    assert 'weir_look_ups_total{found="log",what="parent"} 3.0' in shown, "one for each turn that came from the other"


def test_a_conversation_goes_on_exactly_after_kill_9_between_its_turns(
    start: Callable[[], Process], scripted: tuple[ScriptedEngine, Router], tmp_path: Path
) -> None:
    scripted[0].script = lambda _: Script(ids=ODD)
    messages: list[Any] = []
    for turn in range(3):
        process = start()
        messages.append({"role": "user", "content": f"Turn {turn}"})
        messages.append(ask(process.url, messages))
        process.kill()
    assert_bridged(records(tmp_path / "store"))


@pytest.mark.parametrize("path", ["/v1", "/s/mine/v1"])
def test_a_turn_goes_on_exactly_when_its_parent_is_in_parquet(
    way: Way, tiny_model_dir: Path, tmp_path: Path, path: str
) -> None:
    way.say(Script(ids=ODD))
    root = tmp_path / "compacted"
    messages: list[Any] = []
    calls: list[CallRecord] = []
    for turn in range(3):
        with running_proxy(root, tiny_model_dir, way.router.url) as proxy:
            messages.append({"role": "user", "content": f"Turn {turn}"})
            messages.append(ask(proxy.url, messages, path))
            calls += proxy.records()
        compact(StoreConfig(root=root, segment_grace_s=0))
        assert list_segments(root / "log") == []
    assert_bridged(calls)


def test_an_unknown_history_is_looked_for_once_a_request_and_said_to_be_nowhere(way: Way) -> None:
    way.say("One.")
    ask(way.proxy.url, [USER])
    assert look_ups(way) == {}, "a first turn needs nobody"
    foreign = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "?"},
    ]
    ask(way.proxy.url, foreign)
    assert look_ups(way) == {"nowhere": 1.0}


def test_a_store_that_cannot_be_read_costs_exactness_and_is_counted(way: Way) -> None:
    way.say("One.")
    (way.proxy.store.log_dir / "other" / "00000001.wal").mkdir(parents=True)
    history = [USER, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "?"}]
    assert ask(way.proxy.url, history)["content"] == "One."
    assert look_ups(way)["failed"] == 1.0


def look_ups(way: Way) -> dict[str, float]:
    text = httpx.get(way.proxy.url + "/metrics", trust_env=False, timeout=120).text
    return {found: float(n) for found, n in re.findall(r'weir_look_ups_total\{found="(\w+)".*?\} (\S+)', text)}
