"""Writes trajectories as JSON Lines or Parquet, each file with its provenance. A file appears when it is complete."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.store.query.trajectories import Trajectory
from weir.store.transfer.export_rows import TRL, VERL, WHOLE, flat_row, trl_row, verl_row, whole_row
from weir.store.transfer.output_file import output_file

PROVENANCE = "weir_export"  # the key of a file's provenance
FORM = 1  # version of Weir's own rows; an import refuses later ones
BATCH_ROWS = 256

Provenance = dict[str, Any]
Row = Callable[[Trajectory], dict[str, Any]]


def write_jsonl(trajectories: Iterable[Trajectory], path: Path, provenance: Provenance) -> None:
    """Write one line of provenance, then one line per trajectory. Raises OutputRefused."""
    with output_file(path) as aside, open(aside, "wb") as file:
        file.write(msgspec.json.encode({PROVENANCE: provenance}) + b"\n")
        for one in trajectories:
            file.write(msgspec.json.encode(whole_row(one)) + b"\n")


def write_parquet(trajectories: Iterable[Trajectory], path: Path, provenance: Provenance) -> None:
    """Write Weir's own form as a table. Raises OutputRefused."""
    _write_table(trajectories, path, provenance, WHOLE, flat_row)


def write_trl(trajectories: Iterable[Trajectory], path: Path, provenance: Provenance) -> None:
    """Write a table that `datasets` loads, with TRL's columns. Raises OutputRefused."""
    _write_table(trajectories, path, provenance, TRL, trl_row)


def write_verl(trajectories: Iterable[Trajectory], path: Path, provenance: Provenance) -> None:
    """Write a table with verl's names. Raises OutputRefused."""
    _write_table(trajectories, path, provenance, VERL, verl_row)


def _write_table(
    trajectories: Iterable[Trajectory], path: Path, provenance: Provenance, schema: pa.Schema, row: Row
) -> None:
    told = schema.with_metadata({PROVENANCE: msgspec.json.encode(provenance)})
    with output_file(path) as aside, pq.ParquetWriter(aside, told, compression="zstd") as writer:
        rows = map(row, trajectories)
        while batch := list(itertools.islice(rows, BATCH_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=told))
