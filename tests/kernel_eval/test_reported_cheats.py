"""Every pair of files in cheats/reported earned a reward once, without doing its task. None may earn one again.

They are kept as they were reported. Of each pair, the file that ends with .task.py is the task. EXPECTED in a cheat is
the fault, where only that one shows that it was found out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weir.scripts.bench.kernel_eval.corpus import DOES_ITS_TASK, stated

FOLDER = Path(__file__).parent.parent / "cheats" / "reported"
REPORTED = sorted(path for path in FOLDER.glob("*.py") if not path.name.endswith(".task.py"))


def test_there_are_all_of_them() -> None:
    assert len(REPORTED) >= 393
    assert all(path.with_suffix(".task.py").exists() for path in REPORTED)


@pytest.mark.parametrize("path", REPORTED, ids=lambda path: path.stem)
def test_a_reported_cheat_earns_no_reward_again(path: Path, server_of_every_level: Any) -> None:
    task = path.with_suffix(".task.py").read_text()
    source = path.read_text()
    reply = server_of_every_level.evaluate(source, task, num_correct_trials=3)
    whole = json.dumps(reply, default=str)  # pytest would cut a dictionary short
    if path.stem in DOES_ITS_TASK:
        assert reply["correct"], whole
    else:
        assert not reply["correct"], whole
        assert (reply["raw_reward"] or 0.0) <= 0.3
        assert reply["fault"] == stated(source).get("EXPECTED", reply["fault"]), whole
