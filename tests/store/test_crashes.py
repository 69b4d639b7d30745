"""300 processes killed by SIGKILL while they append, seal, compact and publish: nothing is lost, nothing is doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import support_crashes
from support_crashes import COMPACTOR_POINTS, STORE_ROUNDS, WRITER_POINTS, crash_call, crash_config
from support_stores import stored_names

from weir.store.compact import compact
from weir.store.config import StoreConfig
from weir.store.reader import load_calls
from weir.store.records import unpack_ids

NUM_KILLS = 300
SEED = 11


def assert_holds(config: StoreConfig, promised: list[str]) -> None:
    names = stored_names(config)
    assert len(names) == len(set(names))
    assert set(promised) <= set(names)
    found = {call.call_id: call for call in load_calls(config, ["s"])["s"]}
    for name in promised:
        expected = crash_call(name)
        assert found[name].prompt_ids.tolist() == unpack_ids(expected.prompt_ids).tolist()
        assert found[name].output_logprobs.tobytes() == expected.output_logprobs


def test_300_kills_at_any_point_lose_and_double_nothing(tmp_path: Path) -> None:
    command = [sys.executable, support_crashes.__file__, str(tmp_path), str(SEED), str(NUM_KILLS // 2)]
    driver = subprocess.run(command, capture_output=True, text=True)
    assert driver.returncode == 0, driver.stderr
    points: set[str] = set()
    num_promised = 0
    for store in range(NUM_KILLS // 2 // STORE_ROUNDS):
        config = crash_config(tmp_path / str(store), store)
        promised = (config.root / "acknowledged").read_text().splitlines()
        assert_holds(config, promised)
        compact(config)
        assert_holds(config, promised)
        points |= set((config.root / "killed").read_text().splitlines())
        num_promised += len(promised)
    assert num_promised > NUM_KILLS
    in_log = {f"writer {point}" for point in WRITER_POINTS}
    assert in_log | {f"compactor {point}" for point in COMPACTOR_POINTS} <= points
