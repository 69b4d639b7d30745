"""`weir bench trainer`: both sides compute the same, or there is no figure."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from weir.scripts.bench.trainer.batches import flat_samples, tree_samples, write_model
from weir.scripts.bench.trainer.run import ask, check_equal, num_tokens, side, write_samples
from weir.scripts.launch.errors import CommandError


def test_trees_and_single_sequences_give_the_same_loss_and_gradient(tmp_path: Path) -> None:
    write_model(tmp_path)
    with side([sys.executable, "-m", "weir.scripts.bench.trainer.weir_side", str(tmp_path)]) as weir:
        tree, unshared = ask(weir, "tree"), ask(weir, "unshared")
    check_equal(tree, unshared, "both")
    assert unshared["computed_tokens"] == num_tokens(tree_samples()) - len(tree_samples())  # all but the last ones
    assert tree["computed_tokens"] < unshared["computed_tokens"] / 3
    assert tree["peak_bytes"] > 0


def test_sides_that_differ_are_no_comparison() -> None:
    with pytest.raises(CommandError, match="grad_norm differ"):
        check_equal({"loss": 1.0, "grad_norm": 2.0}, {"loss": 1.0, "grad_norm": 2.1}, "both")


def test_a_side_that_ends_is_named() -> None:
    with side([sys.executable, "-c", "print('no')"]) as broken, pytest.raises(CommandError, match="ended before"):
        ask(broken, "flat")


def test_the_peer_gets_every_prompt_and_answer(tmp_path: Path) -> None:
    samples = flat_samples()
    write_samples(tmp_path / "samples.npz", samples)
    with np.load(tmp_path / "samples.npz") as arrays:
        assert sum(arrays[name].size for name in arrays if name.startswith(("prompt", "output"))) == num_tokens(samples)
        assert arrays["advantages"].tolist() == pytest.approx([sample.advantage for sample in samples])
