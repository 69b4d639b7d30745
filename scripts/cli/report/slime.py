"""Writes trajectories as slime's debug dump, which slime's `--load-debug-rollout-data` reads as Samples."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from weir.store.query.trajectories import Trajectory
from weir.store.transfer.export_files import PROVENANCE, Provenance
from weir.store.transfer.export_rows import slime_row
from weir.store.transfer.output_file import output_file


def write_slime(trajectories: Iterable[Trajectory], path: Path, provenance: Provenance) -> None:
    """Write one torch file with all samples; groups are numbered in order. Raises OutputRefused."""
    import torch

    groups: dict[str, int] = {}
    samples = [
        slime_row(one, index, groups.setdefault(one.facts["group_id"], len(groups)))
        for index, one in enumerate(trajectories)
    ]
    whole = io.BytesIO()  # torch.save does not report a disk that refuses
    torch.save({"rollout_id": 0, "samples": samples, PROVENANCE: provenance}, whole)
    with output_file(path) as aside:
        aside.write_bytes(whole.getbuffer())
