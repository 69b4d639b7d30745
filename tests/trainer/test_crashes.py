"""kill -9 at every boundary of a round: the next start gives the same bits, nothing is used twice, nothing is lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, run_in_process, trainer_config

from weir.store.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.versions import list_versions, verify, versions_folder

STEPS = [
    "claimed",
    "judged",
    "trained",
    "files_written",
    "checkpointed",
    "current",
    "version_added",
    "committed",
    "published",
]


def prepare(root: Path, model_dir: Path) -> StoreConfig:
    store = StoreConfig(root=root)
    add_group(store, model_dir, "g1", [0.0, 0.3, 1.0])
    add_group(store, model_dir, "g2", [0.1, 1.0, 0.3])
    return store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> dict[str, bytes]:
    """The files of both versions of a run that nobody killed."""
    from support_rounds import scripted_judge

    store = prepare(tmp_path_factory.mktemp("undisturbed"), tiny_model_dir)
    with scripted_judge() as judge:
        assert run_in_process(trainer_config(judge, groups_per_round=1), store, tiny_model_dir, rounds=2) == 0
    return contents(store)


def contents(store: StoreConfig) -> dict[str, bytes]:
    """Weights and optimiser state of every version."""
    return {
        f"{version.manifest.version}/{name}": (version.path / name).read_bytes()
        for version in list_versions(store.root)
        for name in ("model.safetensors", "trainer_state.pt")
    }


@pytest.mark.parametrize("step", STEPS)
def test_a_round_that_is_killed_is_continued_to_the_same_bits(
    step: str, tiny_model_dir: Path, tmp_path: Path, judge: Judge, undisturbed: dict[str, bytes]
) -> None:
    store = prepare(tmp_path / "store", tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1)
    assert run_in_process(config, store, tiny_model_dir, kill_at=step) == -signal.SIGKILL
    left = 1 if step in STEPS[STEPS.index("checkpointed") :] else 2  # a round that was checkpointed has happened
    assert run_in_process(config, store, tiny_model_dir, rounds=left) == 0
    assert contents(store) == undisturbed
    catalog = Catalog.open(store)
    assert [(r.round_id, r.state, r.weight_version, r.group_ids) for r in catalog.rounds()] == [
        (1, "committed", 1, ["g1"]),
        (2, "committed", 2, ["g2"]),
    ]
    catalog.close()
    log = [json.loads(line) for line in (store.root / "metrics.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in log] == [1, 2]
    for version in list_versions(store.root):
        verify(version.path)
    assert (versions_folder(store.root) / "CURRENT").read_text() == "00000002\n"


def test_a_continued_round_keeps_the_settings_it_was_claimed_with(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge, undisturbed: dict[str, bytes]
) -> None:
    store = prepare(tmp_path / "store", tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1)
    assert run_in_process(config, store, tiny_model_dir, kill_at="judged") == -signal.SIGKILL
    changed = config.model_copy(update={"lr": 1.0, "seed": 9})
    assert run_in_process(changed, store, tiny_model_dir) == 0
    assert contents(store)["1/model.safetensors"] == undisturbed["1/model.safetensors"]


def test_a_process_that_waits_runs_after_the_other(tiny_model_dir: Path, tmp_path: Path, judge: Judge) -> None:
    import threading

    from weir.trainer.claims import round_lock

    store = prepare(tmp_path / "store", tiny_model_dir)
    codes: list[int | None] = []
    config = trainer_config(judge, groups_per_round=1)
    waiting = threading.Thread(target=lambda: codes.append(run_in_process(config, store, tiny_model_dir)))
    with round_lock(store.root, wait=False):
        waiting.start()
        waiting.join(timeout=3)
        assert waiting.is_alive()
        assert list_versions(store.root) == []
    waiting.join(timeout=60)
    assert codes == [0]
    assert [v.manifest.version for v in list_versions(store.root)] == [1]
