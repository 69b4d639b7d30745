"""Trainers on several machines over one store in S3 and PostgreSQL: one resumes where another ended or stalled."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_s3 import S3Server

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.config import StoreConfig
from weir.store.errors import LeaseLost
from weir.store.maintenance.compact import compact
from weir.store.parquet.round_tokens import find_round_tokens, read_round_call
from weir.trainer.trainer import Trainer
from weir.trainer.versions.object_store import fetch_newest, share_version
from weir.trainer.versions.version_folder import Version, current_version, list_versions, verify, write_version

Machine = Callable[[str], StoreConfig]
STEPS = ["claimed", "trained", "files_written", "checkpointed", "shared", "version_added", "committed"]


@pytest.fixture
def machine(s3: S3Server, postgres_url: str, tmp_path: Path) -> Machine:
    """The settings of a machine: a folder of its own, the root and the catalog of all."""
    shared = {"root": s3.new_root(), "s3_endpoint": s3.url, "catalog_url": postgres_url, "segment_grace_s": 0}
    return lambda name: StoreConfig.model_validate({**shared, "local_folder": tmp_path / name})


def prepare(store: StoreConfig, model_dir: Path) -> None:
    add_group(store, model_dir, "g1", [0.0, 0.3, 1.0])
    add_group(store, model_dir, "g2", [0.1, 1.0, 0.3])
    compact(store)


def contents(store: StoreConfig) -> dict[str, bytes]:
    """Weights and optimiser state of every version on a machine."""
    return {
        f"{version.manifest.version}/{name}": (version.path / name).read_bytes()
        for version in list_versions(store.folder)
        for name in ("model.safetensors", "trainer_state.pt")
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> dict[str, bytes]:
    """The files of both versions of an undisturbed run on one machine."""
    from support_rounds import scripted_judge

    store = StoreConfig(root=tmp_path_factory.mktemp("undisturbed"))
    prepare(store, tiny_model_dir)
    with scripted_judge() as judge:
        assert run_in_process(trainer_config(judge, groups_per_round=1), store, tiny_model_dir, rounds=2) == 0
    return contents(store)


@pytest.mark.parametrize("step", STEPS)
def test_another_machine_goes_on_where_a_trainer_was_killed(
    step: str, machine: Machine, tiny_model_dir: Path, judge: Judge, undisturbed: dict[str, bytes]
) -> None:
    prepare(machine("proxy"), tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1, lease_s=0.5)
    assert run_in_process(config, machine("a"), tiny_model_dir, kill_at=step) == -signal.SIGKILL
    left = 1 if step in STEPS[STEPS.index("shared") :] else 2  # a version that was shared has happened
    assert run_in_process(config, machine("b"), tiny_model_dir, rounds=left) == 0
    assert contents(machine("b")) == undisturbed
    catalog = Catalog.open(machine("b"))
    assert [(r.round_id, r.state, r.weight_version, r.group_ids) for r in catalog.rounds()] == [
        (1, "committed", 1, ["g1"]),
        (2, "committed", 2, ["g2"]),
    ]
    catalog.close()
    fetch_newest(machine("a"))  # as the first machine does when it comes back
    assert [v.manifest for v in list_versions(machine("a").folder)][-1:] == [
        v.manifest for v in list_versions(machine("b").folder)
    ][-1:]


def test_a_trainer_that_stood_still_while_another_took_over_makes_nothing(
    machine: Machine, tiny_model_dir: Path, judge: Judge
) -> None:
    prepare(machine("proxy"), tiny_model_dir)
    catalog = Catalog.open(machine("b"))

    def stand_still(step: str) -> None:
        if step == "trained":
            with catalog.writing().begin() as connection:
                connection.exec_driver_sql("UPDATE leases SET expires_us = 0")
            take_lease(catalog, ROUNDS, "machine b", 60)

    trainer = Trainer(
        trainer_config(judge, groups_per_round=1), machine("a"), model_path=tiny_model_dir, on_step=stand_still
    )
    with pytest.raises(LeaseLost, match="machine b with token 2"):
        trainer.run_round()
    trainer.close()
    assert current_version(machine("a").folder) is None
    fetch_newest(machine("b"))
    assert current_version(machine("b").folder) is None
    assert [row.state for row in catalog.rounds()] == ["claimed"]
    catalog.close()


def test_what_a_round_did_with_its_tokens_is_read_on_a_machine_that_trained_nothing(
    machine: Machine, tiny_model_dir: Path, judge: Judge
) -> None:
    """Where a killed attempt came before, on another machine, what is read is that of the attempt that committed."""
    prepare(machine("proxy"), tiny_model_dir)
    config = trainer_config(judge, groups_per_round=2, lease_s=0.5, keep_tokens="tokens")
    other = config.model_copy(update={"keep_tokens": "calls"})
    assert not find_round_tokens(machine("page"), 1).exists()
    assert run_in_process(other, machine("a"), tiny_model_dir, kill_at="checkpointed") == -signal.SIGKILL
    assert run_in_process(config, machine("b"), tiny_model_dir, rounds=1) == 0
    (own, fetched) = (find_round_tokens(machine(name), 1) for name in ("b", "page"))
    assert own != fetched and own.read_bytes() == fetched.read_bytes()
    assert find_round_tokens(machine("page"), 1) == fetched
    found = read_round_call(fetched, "call-g1-2")
    assert found is not None and found.trace is not None and len(found.trace.logprobs) == 8


def make_version(store: StoreConfig, number: int, content: bytes) -> Version:
    def write_files(folder: Path) -> None:
        (folder / "weights").write_bytes(content)

    folder = store.folder / "versions" / f"{number:08d}"
    return write_version(folder, write_files, version=number, parent=0, round_id=1, config_hash="", seed=0, groups=[])


def test_of_two_machines_that_make_one_version_the_first_has_made_it(machine: Machine) -> None:
    ours, theirs = make_version(machine("a"), 7, b"ours"), make_version(machine("b"), 7, b"theirs")
    assert share_version(machine("a"), ours) == ours
    assert share_version(machine("a"), ours) == ours
    taken = share_version(machine("b"), theirs)
    assert taken.manifest == ours.manifest
    assert (theirs.path / "weights").read_bytes() == b"ours"
    verify(theirs.path)
    assert [path.name for path in theirs.path.parent.iterdir()] == ["00000007"], "nothing is left aside"


def test_a_machine_that_lost_its_disk_has_the_newest_version_again(machine: Machine) -> None:
    for number in (1, 2):
        share_version(machine("a"), make_version(machine("a"), number, b"%d" % number))
    shutil.rmtree(machine("a").folder)
    fetch_newest(machine("a"))
    [version] = list_versions(machine("a").folder)
    assert (version.manifest.version, (version.path / "weights").read_bytes()) == (2, b"2")
    before = version.path.stat().st_mtime_ns
    fetch_newest(machine("a"))
    assert version.path.stat().st_mtime_ns == before, "what is here is not fetched again"
