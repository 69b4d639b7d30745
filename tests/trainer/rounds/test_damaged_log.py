"""Rounds over a log with a damaged segment: groups that may lack calls are named and wait; a torn end is no damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from support_rounds import Judge, add_group, make_record, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.segment_format import FRAME, HEADER, list_segments
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.maintenance.verify import verify
from weir.trainer.trainer import Trainer

TASK = {"task_id": "silent", "prompt": "write it", "reference_src": "# silent"}


@pytest.fixture
def trainer(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> Iterator[Trainer]:
    """Over a group of three sessions, each of one call, in a log of its own."""
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    console = Console(record=True, width=400, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir, console=console)
    yield trainer
    trainer.close()


def log_of(store: StoreConfig, group_id: str) -> Path:
    [segment] = [one for one in list_segments(store.log_dir) if one.writer == f"writer-{group_id}"]
    return segment.path


def frames(log: Path) -> list[int]:
    """Where each frame of a segment begins, and where the last one ends."""
    data, offsets = log.read_bytes(), [HEADER.size]
    while data[offsets[-1] : offsets[-1] + 4].strip(b"\0"):
        offsets.append(offsets[-1] + FRAME.size + FRAME.unpack_from(data, offsets[-1])[0])
    return offsets


def flip(log: Path, at: int) -> None:
    data = bytearray(log.read_bytes())
    data[at] ^= 0xFF
    log.write_bytes(data)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_whose_calls_lie_behind_a_bad_frame_waits_for_the_repair(
    compacted: bool, trainer: Trainer, store: StoreConfig, tiny_model_dir: Path
) -> None:
    log = log_of(store, "g1")
    flip(log, sum(frames(log)[1:3]) // 2)
    if compacted:
        compact(store)
    add_group(store, tiny_model_dir, "g2", [0.0, 1.0])
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["groups"], report.metrics["samples"]) == (1, 2), "of the group whose log is whole"
    assert trainer.run_round() is None
    said = trainer.console.export_text()
    assert said.count("group g1 waits") == 1 and str(log) in said
    assert verify(store, fix=True).is_sound is False
    after = trainer.run_round()
    assert after is not None
    assert (after.metrics["groups"], after.metrics["samples"]) == (1, 2), "one of three is in no readable byte"


@pytest.mark.parametrize("at", ["header", "first"])
def test_a_segment_of_which_nothing_is_read_consumes_nothing(
    at: str, trainer: Trainer, store: StoreConfig, judge: Judge
) -> None:
    log = log_of(store, "g1")
    flip(log, 13 if at == "header" else frames(log)[0] + 100)
    assert trainer.plan() is None
    assert trainer.run_round() is None
    assert (trainer.catalog.rounds(), judge.candidates) == ([], [])
    verify(store, fix=True)
    report = trainer.run_round()
    assert report is not None
    assert report.metrics["samples"] == (3 if at == "header" else 2)


def test_a_session_whose_only_call_may_be_the_bad_frame_waits_too(
    trainer: Trainer, store: StoreConfig, tiny_model_dir: Path
) -> None:
    """Not even the name of its group can be read."""
    log = log_of(store, "g1")
    start, end = frames(log)[1:3]
    data = log.read_bytes()
    log.write_bytes(data[:start] + b"\x01" * (end - start) + data[end:])
    assert trainer.run_round() is None


def test_a_torn_end_keeps_nothing_waiting(trainer: Trainer, store: StoreConfig) -> None:
    log = log_of(store, "g1")
    data, end = log.read_bytes(), frames(log)[-1]
    log.write_bytes(data[:end] + FRAME.pack(5000, 7) + b"a call that nobody was told is recorded")
    report = trainer.run_round()
    assert report is not None and report.metrics["samples"] == 3


def test_a_group_without_calls_waits_where_a_segment_is_gone(
    trainer: Trainer, store: StoreConfig, tiny_model_dir: Path, tmp_path: Path
) -> None:
    log = log_of(store, "g1")
    kept = log.rename(tmp_path / "kept")
    add_group(store, tiny_model_dir, "g2", [0.0, 1.0])
    report = trainer.run_round()
    assert report is not None and report.metrics["groups"] == 1, "that which has all its calls"
    assert trainer.run_round() is None
    assert f"group g1 waits: {log} is gone" in trainer.console.export_text()
    kept.rename(log)
    after = trainer.run_round()
    assert after is not None and (after.metrics["groups"], after.metrics["samples"]) == (1, 3)


def test_an_empty_file_in_place_of_a_gone_segment_says_that_nothing_comes(trainer: Trainer, store: StoreConfig) -> None:
    log = log_of(store, "g1")
    log.write_bytes(b"")
    assert trainer.plan() is not None
    compact(store)
    log.unlink(missing_ok=True)
    report = trainer.run_round()
    assert report is not None and (report.metrics["samples"], report.metrics["groups_invalid"]) == (0, 1)


def test_a_segment_that_was_gone_before_the_group_began_keeps_nothing_waiting(
    trainer: Trainer, store: StoreConfig, tiny_model_dir: Path
) -> None:
    """Such numbers there are also where the disk refused a segment's first call."""
    trainer.run_round()
    log_of(store, "g1").unlink()
    writer = LogWriter(store.folder, "writer-g1", store)
    writer.append(make_record("other", "s", "elsewhere", [1], [2], [-1.0])).result()
    writer.close()
    catalog = Catalog.open(store)
    catalog.register_session("s0", "silent", task=TASK, group_size=1, metadata={}, key_hash=None)
    catalog.finish_session("s0", status="failed", info={})
    catalog.close()
    report = trainer.run_round()
    assert report is not None and report.metrics["groups_invalid"] == 1
