"""300 processes killed by SIGKILL while they append, seal, compact, merge, publish, retire, collect garbage and repair.

Nothing is lost or duplicated, in either durability; groups that retention removes leave whole.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import support_crashes
from support_crashes import (
    COMPACTOR_POINTS,
    GOING,
    STORE_ROUNDS,
    UPKEEP_POINTS,
    WRITER_POINTS,
    crash_call,
    crash_config,
    retiring,
)
from support_stores import stored_names

from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.maintenance.verify import verify
from weir.store.reader import load_calls
from weir.store.records.call_record import unpack_ids

NUM_KILLS = 300
SEED = 11


def assert_holds(config: StoreConfig, promised: list[str]) -> None:
    names = stored_names(config)
    assert len(names) == len(set(names))
    expected_calls = [call for call in map(crash_call, promised) if call.group_id != GOING]
    assert {call.call_id for call in expected_calls} <= set(names)
    found = {call.call_id: call for call in load_calls(config, ["s"])["s"]}
    for expected in expected_calls:
        name = expected.call_id
        assert found[name].prompt_ids.tolist() == unpack_ids(expected.prompt_ids).tolist()
        assert found[name].output_logprobs.tobytes() == expected.output_logprobs


def test_300_kills_at_any_point_lose_and_double_nothing(tmp_path: Path) -> None:
    command = [sys.executable, support_crashes.__file__, str(tmp_path), str(SEED), str(NUM_KILLS // 2)]
    driver = subprocess.run(command, capture_output=True, text=True)
    assert driver.returncode == 0, driver.stderr
    points: set[str] = set()
    num_promised = 0
    durabilities: set[str] = set()
    for store in range(NUM_KILLS // 2 // STORE_ROUNDS):
        config = crash_config(tmp_path / str(store), store)
        promised = (config.root / "acknowledged").read_text().splitlines()
        assert_holds(config, promised)
        compact(config)
        assert_holds(config, promised)
        assert verify(config, fix=True).repair is None or verify(config).is_sound
        collect_garbage(retiring(config))
        assert_holds(config, promised)
        assert load_calls(config, ["going"])["going"] == []
        durabilities.add(config.durability)
        points |= set((config.root / "killed").read_text().splitlines())
        num_promised += len(promised)
    assert num_promised > NUM_KILLS
    in_log = {f"writer {point}" for point in WRITER_POINTS}
    assert in_log | {f"compactor {point}" for point in COMPACTOR_POINTS} <= points
    assert {f"upkeep {point}" for point in UPKEEP_POINTS} <= points
    assert durabilities == {"os", "fsync"}
