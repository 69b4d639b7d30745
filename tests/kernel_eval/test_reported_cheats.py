"""Every pair of files in cheats/reported earned a reward once, without doing its task. None may earn one again.

They are kept as they were reported. Of each pair, the file that ends with .task.py is the task. EXPECTED in a cheat is
the fault, where only that one shows that it was found out. The first are asked at every sandbox level that works here,
each other one at one of these, since containment has no part in a verdict on an answer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.scripts.bench.kernel_eval.corpus import DOES_ITS_TASK, stated

FOLDER = Path(__file__).parent.parent / "cheats" / "reported"
REPORTED = sorted(path for path in FOLDER.glob("*.py") if not path.name.endswith(".task.py"))
_FIRST = """
abs_by_moves_only comprehension_name_is_a_builtin constant_runs_code_in_replay cumprod_only_prefix
default_argument_scope fp8_round_by_moves_only frobenius_skips_blocks fstring_format_spec
hard_coded_size_rest_hidden hardsigmoid_without_clamps hardtanh_is_a_copy hinge_no_clamp huber_is_half_mse
kernel_copies_tenth_of_a_permute kernel_in_first_call_only l2_68_min_never_hits layernorm_ignores_affine
maxpool_relu_fused_zero mod256_by_moves_only mse_skips_part naive_softmax_overflows numpy_hides_relu_zero_proof
oracle_turn1 oracle_turn2 proof_only_needs_negative_elu race_sequential_programs relu_proof_is_all_zero
smuggled_builtins softplus_poly tanh_pade triplet_no_relu two_faced_kernel universal_torch_on_attention
"""
FIRST = frozenset(_FIRST.split())


def _asked() -> Iterator[tuple[Path, SandboxLevel]]:
    """Level by level, since each is a server of its own, which ends where a test asks another."""
    levels = [level for level in SandboxLevel if containment.works(level)]
    for at, level in enumerate(levels):
        for path in REPORTED:
            if path.stem in FIRST or zlib.crc32(path.stem.encode()) % len(levels) == at:
                yield path, level


def test_there_are_all_of_them() -> None:
    assert len(REPORTED) >= 393
    assert {path.stem for path in REPORTED} >= FIRST and len(FIRST) == 33
    assert all(path.with_suffix(".task.py").exists() for path in REPORTED)


@pytest.mark.parametrize(
    ("path", "server_of_every_level"),
    [pytest.param(path, level, id=f"{path.stem}-{level}") for path, level in _asked()],
    indirect=["server_of_every_level"],
)
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
