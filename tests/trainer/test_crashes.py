"""kill -9 at every boundary of a round, and anywhere: the same bits afterwards, nothing used twice, nothing lost."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from support_loading_engine import LoadingEngine, loading_engine
from support_rounds import Judge, add_group, run_in_process, scripted_judge, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.versions.version_folder import list_versions, verify, versions_folder

STEPS = [
    "claimed",
    "judged",
    "trained",
    "files_written",
    "checkpointed",
    "shared",
    "current",
    "version_added",
    "committed",
    "published",
]
RANDOM_KILLS = 60
KILLS_PER_TEST = 20


def prepare(root: Path, model_dir: Path) -> StoreConfig:
    store = StoreConfig(root=root)
    add_group(store, model_dir, "g1", [0.0, 0.3, 1.0])
    add_group(store, model_dir, "g2", [0.1, 1.0, 0.3])
    return store


@dataclass(frozen=True)
class Undisturbed:
    """A store with two groups, and the results of two undisturbed rounds over it."""

    before: Path
    contents: dict[str, bytes]
    calls: int  # of functions


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder / "before", tiny_model_dir)
    for name in ("warm", "run"):  # the first process imports what later ones find in memory
        store = copy_store(folder / "before", folder / name)
        with scripted_judge() as judge, loading_engine() as engine:
            config = trainer_config(judge, groups_per_round=1, engine_urls=[engine.url])
            count = folder / f"{name}-calls"
            assert run_in_process(config, store, tiny_model_dir, rounds=None, count_into=count) == 0
    return Undisturbed(before=folder / "before", contents=contents(store), calls=int(count.read_text()))


def copy_store(before: Path, folder: Path) -> StoreConfig:
    shutil.copytree(before, folder)
    return StoreConfig(root=folder)


def contents(store: StoreConfig) -> dict[str, bytes]:
    """Weights and optimiser state of every version."""
    return {
        f"{version.manifest.version}/{name}": (version.path / name).read_bytes()
        for version in list_versions(store.folder)
        for name in ("model.safetensors", "trainer_state.pt")
    }


def assert_as_undisturbed(store: StoreConfig, engine: LoadingEngine, undisturbed: Undisturbed) -> None:
    """The same bits, every group used once, every round reported once, and the engine on the newest version."""
    assert contents(store) == undisturbed.contents
    catalog = Catalog.open(store)
    assert [(r.round_id, r.state, r.weight_version, r.group_ids) for r in catalog.rounds()] == [
        (1, "committed", 1, ["g1"]),
        (2, "committed", 2, ["g2"]),
    ]
    catalog.close()
    log = [json.loads(line) for line in (store.folder / "metrics.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in log] == [1, 2]
    for version in list_versions(store.folder):
        verify(version.path)
    assert (versions_folder(store.folder) / "CURRENT").read_text() == "00000002\n"
    assert (engine.version, engine.paused) == ("2", False)


@pytest.mark.parametrize("step", STEPS)
def test_a_round_that_is_killed_is_continued_to_the_same_bits(
    step: str, tiny_model_dir: Path, tmp_path: Path, judge: Judge, undisturbed: Undisturbed
) -> None:
    store = copy_store(undisturbed.before, tmp_path / "store")
    with loading_engine() as engine:
        config = trainer_config(judge, groups_per_round=1, engine_urls=[engine.url])
        assert run_in_process(config, store, tiny_model_dir, kill_at=step) == -signal.SIGKILL
        assert run_in_process(config, store, tiny_model_dir, rounds=None) == 0
        assert_as_undisturbed(store, engine, undisturbed)


@pytest.mark.parametrize("seed", range(RANDOM_KILLS // KILLS_PER_TEST))
def test_rounds_that_are_killed_at_random_again_and_again_end_at_the_same_bits(
    seed: int, tiny_model_dir: Path, tmp_path: Path, judge: Judge, undisturbed: Undisturbed
) -> None:
    random = Random(seed)
    kills = stories = 0
    with loading_engine() as engine:
        # every other time the next round's answers are judged ahead, which changes nothing
        config = trainer_config(judge, groups_per_round=1, engine_urls=[engine.url], judge_ahead_groups=seed % 2)
        while kills < KILLS_PER_TEST:
            store = copy_store(undisturbed.before, tmp_path / f"store-{stories}")
            stories, code = stories + 1, None
            while code != 0:
                kill_at = random.randint(1, undisturbed.calls)
                code = run_in_process(config, store, tiny_model_dir, kill_at=kill_at, rounds=None)
                assert code in (0, -signal.SIGKILL)
                kills += code != 0
            assert_as_undisturbed(store, engine, undisturbed)
            shutil.rmtree(store.folder)


def test_a_continued_round_keeps_the_settings_it_was_claimed_with(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge, undisturbed: Undisturbed
) -> None:
    store = prepare(tmp_path / "store", tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1)
    assert run_in_process(config, store, tiny_model_dir, kill_at="judged") == -signal.SIGKILL
    changed = config.model_copy(update={"lr": 1.0, "seed": 9})
    assert run_in_process(changed, store, tiny_model_dir) == 0
    assert contents(store)["1/model.safetensors"] == undisturbed.contents["1/model.safetensors"]


def test_a_process_that_waits_runs_after_the_other(tiny_model_dir: Path, tmp_path: Path, judge: Judge) -> None:
    import threading

    from weir.trainer.lease import round_lock

    store = prepare(tmp_path / "store", tiny_model_dir)
    codes: list[int | None] = []
    config = trainer_config(judge, groups_per_round=1)
    waiting = threading.Thread(target=lambda: codes.append(run_in_process(config, store, tiny_model_dir)))
    with round_lock(store.root, wait=False):
        waiting.start()
        waiting.join(timeout=3)
        assert waiting.is_alive()
        assert list_versions(store.root) == []
    waiting.join()
    assert codes == [0]
    assert [v.manifest.version for v in list_versions(store.root)] == [1]
