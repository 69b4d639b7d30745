"""The report of a store: its figures are the store's, and the page needs no other file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support_rounds import add_group, scripted_judge, trainer_config

from weir.scripts.cli.report.html import write_report
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, begin_phase
from weir.store.catalog.leases import take_lease
from weir.store.config import StoreConfig
from weir.store.errors import OutputRefused
from weir.trainer.trainer import Trainer


def test_the_report_shows_rewards_faults_and_phases_of_the_rounds(tmp_path: Path, tiny_model_dir: Path) -> None:
    store = StoreConfig(root=tmp_path / "store")
    with scripted_judge() as judge:
        add_group(store, tiny_model_dir, "g1", [1.0, 0.3, 0.0, 1.0], sampling={"top_p": 0.9})
        trainer = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir)
        trainer.run_round()
        add_group(store, tiny_model_dir, "g2", [0.3, 0.3], version="1")
        trainer.run_round()
        trainer.close()
    page = write_report(store, tmp_path / "report.html").read_text()
    assert "6 calls in 6 sessions and 2 groups; 48 sampled tokens; 6 answers judged." in page
    assert "weight version 0: 0.575" in page, "the mean reward of version 0"
    assert "weight version 0: 0.500" in page, "the share correct of version 0"
    assert "0, output_mismatch: 0.25" in page and "0, syntax_error: 0.25" in page
    assert all(f"1, {phase}:" in page for phase in ("judge", "train", "checkpoint", "publish"))
    assert "<th>corrected: truncated sampling</th><th>skipped: no spread</th>" in page
    assert "<td>1</td><td>4</td><td>4</td><td>4</td><td>0</td>" in page, "round, calls, samples, corrected, left out"
    assert "<td>2</td><td>2</td><td>0</td><td>0</td><td>2</td>" in page
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org)|@import", page), "the page must be self-contained"


def test_the_report_shows_what_members_of_a_cluster_did_in_shares_of_their_time(tmp_path: Path) -> None:
    store = StoreConfig(root=tmp_path / "store")
    catalog = Catalog.open(store)
    lease = take_lease(catalog, CLUSTER, "test", 600)
    begin_phase(catalog, "both", "rollout", "started", lease, began_us=1)
    spent = {"generate": 3.0, "no_samples": 0.5, "no_role": 9.0}
    begin_phase(catalog, "both", "train", "sample_ready", lease, began_us=2, seconds=spent)
    begin_phase(catalog, "both", "waits", "trained", lease, began_us=3, seconds={"train": 0.5})
    catalog.close()
    page = write_report(store, tmp_path / "report.html").read_text()
    assert all(f"both, {what}" in page for what in ("generate: 0.75", "no_samples: 0.125", "train: 0.125"))
    assert "<title>phases of members</title>" in page and ">both</text>" in page


def test_the_report_of_an_empty_store_is_a_page_that_says_so(tmp_path: Path) -> None:
    page = write_report(StoreConfig(root=tmp_path / "store"), tmp_path / "report.html").read_text()
    assert "0 calls in 0 sessions" in page and "Nothing was recorded" in page


def test_a_report_that_cannot_be_written_is_refused_and_no_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(OutputRefused, match=r"cannot write .*nope/r.html: No such file or directory; name another"):
        write_report(StoreConfig(root=tmp_path / "store"), tmp_path / "nope" / "r.html")
    assert not (tmp_path / "nope").exists()
