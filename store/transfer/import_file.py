"""Imports trajectories from JSON Lines: calls into the log, then sessions and rewards into the catalog.

Invariants: nothing is stored unless every line of the file can be read, agrees with the others and with the store;
sessions enter the catalog in one transaction, after their calls, so that no round sees half of a file; a killed import
can be run again. The same file again changes nothing, because names of calls, sessions and rewards derive from it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec
from xxhash import xxh3_128_digest

from weir.store.catalog.catalog import Catalog
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.errors import ImportRefused, SchemaTooNew
from weir.store.log.writer import LogWriter
from weir.store.parquet.prompts import list_slices
from weir.store.reader import connect
from weir.store.records.call_record import CallRecord
from weir.store.shared.log import LogSharing
from weir.store.transfer.export_files import FORM, PROVENANCE
from weir.store.transfer.import_catalog import keep_sessions
from weir.store.transfer.import_lines import Line, read_line
from weir.store.transfer.import_plan import CallMark, ImportPlan
from weir.store.transfer.import_records import records_of

BATCH = 64  # records that wait for the disk at once
LOOKED_UP = 10_000  # calls per look-up in the store
_PARQUET = b"PAR1"  # the first bytes of a Parquet file
_STORED = """
SELECT call_id, session_id, group_id, end_hash, output_logprobs FROM stored.calls
WHERE call_id IN (SELECT unnest($1))
"""


class _Head(msgspec.Struct):
    form: int


class _Provenance(msgspec.Struct):
    weir_export: _Head


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Counts of one import."""

    trajectories: int
    calls: int
    sessions: int
    groups: int
    known_calls: int  # those that the store had already


def import_jsonl(config: StoreConfig, path: Path, weight_version: int | None = None) -> ImportReport:
    """Import all trajectories of a file. `weight_version` is for sampled tokens whose line gives none.

    Raises ImportRefused with the line that cannot be imported, and SessionConflict or RewardConflict where the store
    has a session with other values.
    """
    plan = ImportPlan()
    for line, records, place in _lines(path, weight_version):
        plan.add(line, records, place)
    if not plan.num_lines:
        raise ImportRefused(f"{path} holds no trajectory")
    catalog = Catalog.open(config)
    try:
        stored = _stored_calls(config, plan)
        keep_sessions(catalog, plan, trial=True)
        _append(config, catalog, path, weight_version, stored)
        keep_sessions(catalog, plan)
    finally:
        catalog.close()
    return ImportReport(
        trajectories=plan.num_lines,
        calls=len(plan.calls),
        sessions=len(plan.sessions),
        groups=len(plan.group_sizes()),
        known_calls=len(stored),
    )


def _lines(path: Path, weight_version: int | None) -> Iterator[tuple[Line, list[CallRecord], str]]:
    """Every line with its records and its place in the file."""
    copies: Counter[bytes] = Counter()
    started_us = now_us()
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            if number == 1 and text.startswith(_PARQUET):
                raise ImportRefused(
                    f"{path} is Parquet, and only JSON Lines are imported: write it with `weir export --format jsonl`"
                )
            text, place = text.strip(), f"{path}:{number}"
            if not text or (number == 1 and _is_provenance(text, path)):
                continue
            name = xxh3_128_digest(text)
            line = read_line(text, place, copies[name])
            copies[name] += 1
            yield line, list(records_of(line, place, path.name, weight_version, started_us)), place


def _is_provenance(text: bytes, path: Path) -> bool:
    """Whether the text is the provenance line of an export. Raises SchemaTooNew for a later form."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if PROVENANCE not in fields:
            return False
        form = msgspec.json.decode(text, type=_Provenance).weir_export.form
    except msgspec.DecodeError:
        return False  # refused later, as a trajectory
    if form > FORM:
        raise SchemaTooNew(
            f"{path} has form {form}, this Weir reads up to {FORM}: import it with the Weir that wrote it"
        )
    return True


def _stored_calls(config: StoreConfig, plan: ImportPlan) -> set[str]:
    """The file's calls that the store has already. Raises ImportRefused where one of them differs."""
    names = list(plan.calls)
    found: set[str] = set()
    with connect(config) as db:
        for start in range(0, len(names), LOOKED_UP):
            rows = db.sql(_STORED, params=[names[start : start + LOOKED_UP]]).to_arrow_table()
            logprobs = list_slices(rows["output_logprobs"])
            for i, row in enumerate(rows.drop_columns(["output_logprobs"]).to_pylist()):
                call_id = row.pop("call_id")
                _refuse_other(
                    call_id, CallMark(**row, logprobs_hash=xxh3_128_digest(logprobs[i].tobytes())), plan.calls
                )
                found.add(call_id)
    return found


def _refuse_other(call_id: str, stored: CallMark, planned: Mapping[str, tuple[CallMark, str]]) -> None:
    mark, place = planned[call_id]
    if mark != stored:
        raise ImportRefused(
            f"{place}: call {call_id} is in the store with other tokens, logprobs, or of another session; "
            "import into another store, or give it another call_id"
        )


def _append(config: StoreConfig, catalog: Catalog, path: Path, weight_version: int | None, stored: set[str]) -> None:
    """Append the calls that the store lacks, each once, and share them with other machines."""
    writer = f"import-{hashlib.sha256(path.name.encode()).hexdigest()[:8]}-{time.time_ns()}"
    log = LogWriter(config.folder, writer, config)
    sharing = LogSharing(config, catalog, writer)
    done = set(stored)
    waiting: list[Future[None]] = []
    try:
        for _, records, _ in _lines(path, weight_version):
            for record in records:
                if record.call_id not in done:
                    done.add(record.call_id)
                    waiting.append(log.append(record))
                if len(waiting) >= min(BATCH, config.queue_records):
                    _wait(waiting)
        _wait(waiting)
    finally:
        log.close()
        sharing.close()


def _wait(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()
    futures.clear()
