"""`weir bench publish --faults` in small: each fault once, and the check of tokens sees other weights."""

from __future__ import annotations

from pathlib import Path

from weir.scripts.bench.publish import faults
from weir.scripts.bench.publish.sampled_weights import count_wrong_tokens


def test_after_every_fault_all_engines_have_the_newest_version_and_no_agent_saw_an_error(tmp_path: Path) -> None:
    figures = faults.measure(tmp_path, publishes=len(faults.FAULTS), seed=0)
    assert figures["faults"] == dict.fromkeys(faults.FAULTS, 1)
    assert figures["client_errors"] == figures["tokens_of_wrong_weights"] == 0
    assert figures["engines_on_the_newest"] == figures["engines"] == faults.NUM_ENGINES
    models = [tmp_path / f"model-{seed}" for seed in range(faults.NUM_MODELS)]
    wrong, tokens, _ = count_wrong_tokens(tmp_path / "store", [*models[1:], models[0]])
    assert figures["tokens"] == tokens > 0
    assert wrong > 0.9 * tokens, "with the weights of other versions"
