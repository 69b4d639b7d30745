"""The first day with SGLang and a real language model: docs/sglang.md, command by command, and what was recorded.

Real SGLang on a CPU, SmolLM2-135M-Instruct, the real router, unmodified clients with sampling parameters of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from first_day.sglang_page import Block, Place, blocks_of_page
from sglang_server import needs_sglang

from weir.store.config import StoreConfig
from weir.store.reader import connect, load_calls

pytestmark = [needs_sglang, pytest.mark.sglang]
LONG_S = 600.0


@pytest.fixture
def place(tmp_path: Path, smollm2_dir: Path) -> Iterator[Place]:
    """A folder whose models/ are those of this machine's cache, so that `weir model get` only verifies them."""
    (tmp_path / "models").symlink_to(smollm2_dir.parent)
    place = Place(folder=tmp_path)
    yield place
    place.stop()


def follow(place: Place, blocks: list[Block]) -> dict[str, str]:
    """Do what some blocks of the page say; what each command printed."""
    printed = {}
    for block in blocks:
        if block.language == "toml":
            place.write_settings(block)
        elif block.language == "python":
            (place.folder / "agent").write_text(place.here(block.text))
        else:
            printed |= {command: place.run(command) for command in block.commands}
    return printed


def test_the_page_leads_from_nothing_to_a_round_and_clients_stay_as_they_are(place: Place) -> None:
    printed = follow(place, blocks_of_page()[0])
    assert f"version 1 is served by {place.url(31000)}" in printed["weir round"]
    assert place.url(31000) in printed["weir versions"]
    info = httpx.get(place.url(31000) + "/model_info", trust_env=False, timeout=120).json()
    assert info["weight_version"] == "1"
    store = StoreConfig(root=place.folder / "weir-data")
    with connect(store) as sql:
        rows = sql.sql("SELECT level, stitch, version_min, version_max FROM calls ORDER BY started_us").fetchall()
    assert rows == [("tokens", stitch, 0, 0) for stitch in ("new_root", "bridged") * 2]
    _unmodified_clients(place, store)


def _unmodified_clients(place: Place, store: StoreConfig) -> None:
    """Agents that send what they like, streamed or not, are recorded exactly; their sampling is what they asked for."""
    said: list[Any] = [{"role": "user", "content": "Sag 世界 auf Deutsch, s'il te plaît."}]
    chat = openai.OpenAI(base_url=f"{place.url(8700)}/v1", api_key="any", timeout=LONG_S)
    answer = chat.chat.completions.create(
        model="smollm2", messages=said, max_tokens=24, top_p=0.9, temperature=0.7, frequency_penalty=0.1
    )
    said += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "Danke!"}]
    chunks = list(chat.chat.completions.create(model="smollm2", messages=said, max_tokens=8, stream=True, top_p=0.95))
    assert chunks[-1].choices[0].finish_reason
    messages = anthropic.Anthropic(base_url=place.url(8700), api_key="any", timeout=LONG_S)
    message = messages.messages.create(
        model="smollm2",
        max_tokens=16,
        messages=[{"role": "user", "content": "Hi"}],
        extra_body={"top_k": 20, "temperature": 0.0},  # this version of the SDK has no arguments for them
    )
    assert message.stop_reason in ("end_turn", "max_tokens")
    with connect(store) as sql:
        rows = sql.sql(
            "SELECT session_id, dialect, level, stitch, version_min, sampling->>'top_p', sampling->>'top_k' FROM calls "
            "ORDER BY started_us DESC LIMIT 3"
        ).fetchall()
    (_, *last), (session, *second), (again, *first) = rows
    assert last == ["messages", "tokens", "new_root", 1, "1.0", "20"]
    assert second == ["chat", "tokens", "bridged", 1, "0.95", "-1"]
    assert first == ["chat", "tokens", "new_root", 1, "0.9", "-1"] and session == again
    one, two = load_calls(store, [session])[session]
    exact = [*one.prompt_ids.tolist(), *one.output_ids.tolist()]
    assert two.prompt_ids.tolist()[: len(exact)] == exact


def test_by_hand_a_wrong_label_is_named_and_left_out_and_then_the_loop_runs(place: Place) -> None:
    blocks = blocks_of_page()[1]
    agent = next(block for block in blocks_of_page()[0] if block.language == "python")
    *start, rounds = blocks
    follow(place, [agent, *start])
    label(place, "default")
    doctor = place.run(f"weir doctor --upstream {place.url(30000)} --model smollm2 --leave-engines", status=1)
    assert "required and missing: weight version" in doctor
    follow(place, [Block("bash", "python agent\n")])
    assert "the engine named the weights of tokens 0:" in place.run("weir round")
    label(place, "0")
    printed = follow(place, [rounds])
    assert "is left out" in printed["weir round"] and "'default'" in printed["weir round"]
    assert f"version 1 is served by {place.url(31000)}" in printed["weir round"]
    log = next(place.folder.glob("weir-proxy*.log")).read_text()
    assert "'default', which is not an integer: no round can train on their calls" in log


def label(place: Place, version: str) -> None:
    """Rename the engine's weights: as if it had been started with that --weight-version, or without one."""
    body = {"new_version": version, "abort_all_requests": False}
    answer = httpx.post(place.url(31000) + "/update_weight_version", json=body, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
