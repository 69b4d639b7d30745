"""Finds one compacted call by the history that it ends or by its id, and reads it back as a record.

It reads the call and the bases of its prompt, and no other calls of its group. Of a store in S3 it fetches only the
files that the catalog knows to have calls of the call's group, of the session's where the caller names one, or of the
time that is asked for. An id says when its call was made; only where no file of that time has it, all are fetched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import SQL_VARIABLES, Catalog
from weir.store.catalog.files import files_of_sessions, files_with_groups
from weir.store.config import StoreConfig
from weir.store.errors import StoreCorrupt, StoreUnavailable
from weir.store.parquet.columns import SCHEMA, TOKEN_COLUMNS
from weir.store.parquet.files import read_calls
from weir.store.parquet.prompts import rebuild
from weir.store.records.call_record import CallRecord, VersionSpan, pack_ids, pack_logprobs
from weir.store.records.ids import made_us
from weir.store.shared.local_copies import Copies

ID_SLACK_US = 1_000_000  # between the making of an id and the times of its call
_AS_JSON = ("finish_matched", "sampling", "agent_ids", "asked_sampling")


class StoredCalls:
    """The compacted calls of a store. One look-up at a time."""

    def __init__(self, config: StoreConfig, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog
        self._copies = Copies(config)  # of the current look-up

    def ending(self, digests: Sequence[bytes]) -> list[CallRecord]:
        """The calls that end the last of these histories that any call ends."""
        with self._reading():
            return self._ending(digests)

    def read(self, call_id: str) -> CallRecord | None:
        """One whole call. Raises StoreCorrupt where its prompt cannot be rebuilt."""
        with self._reading():
            return self._read(call_id)

    def first_tries(self, dialect: str, body: bytes, since_us: int, session_id: str | None) -> list[CallRecord]:
        """Recent calls with exactly the same request body, in one session or (None) in any."""
        with self._reading():
            return self._first_tries(dialect, body, since_us, session_id)

    def group_of(self, session_id: str) -> str | None:
        """The group of a session, from its latest compacted call."""
        with self._reading():
            found = read_calls(
                self._files_since(0, session_id), {"session_id": [session_id]}, ["group_id", "started_us"]
            )
        calls = sorted(found.to_pylist(), key=lambda row: int(row["started_us"]))
        return str(calls[-1]["group_id"]) if calls else None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._copies = Copies(self._config)
        try:
            yield
        except (sa.exc.SQLAlchemyError, pa.ArrowException, OSError) as error:
            raise StoreUnavailable(f"cannot read a compacted call of {self._config.root}: {error}") from error
        finally:
            self._copies.close()

    def _ending(self, digests: Sequence[bytes]) -> list[CallRecord]:
        for start in range(len(digests), 0, -SQL_VARIABLES):
            among = list(digests[max(0, start - SQL_VARIABLES) : start])
            chosen = t.call_ends.c.digest.in_(among)
            with self._catalog.reading().begin() as connection:
                rows = connection.execute(sa.select(t.call_ends.c.digest, t.call_ends.c.call_id).where(chosen)).all()
            if rows:
                last = max(among.index(row.digest) for row in rows)
                found = [self._read(row.call_id) for row in rows if row.digest == among[last]]
                return [record for record in found if record is not None]
        return []

    def _read(self, call_id: str) -> CallRecord | None:
        for paths in self._may_be_in(call_id):
            table = read_calls(self._fetched(paths), {"call_id": [call_id]}, SCHEMA.names)
            if table.num_rows:
                (row,) = table.slice(0, 1).to_pylist()
                return _record(row, self._prompt(table))
        return None

    def _first_tries(self, dialect: str, body: bytes, since_us: int, session_id: str | None) -> list[CallRecord]:
        files = self._files_since(since_us, session_id)
        wanted = {"dialect": [dialect]} | ({"session_id": [session_id]} if session_id is not None else {})
        table = read_calls(files, wanted, ["call_id", "request", "finished_us"])
        same = [r["call_id"] for r in table.to_pylist() if r["request"] == body and r["finished_us"] >= since_us]
        return [record for record in map(self._read, same) if record is not None]

    def _may_be_in(self, call_id: str) -> Sequence[Sequence[str]]:
        """The paths of its own file where the catalog knows it; else of the files of its time, then of all others."""
        f = t.files.c
        of_call = sa.select(f.path).join(t.call_ends, t.call_ends.c.file_id == f.file_id)
        with self._catalog.reading().begin() as connection:
            if own := connection.scalars(of_call.where(t.call_ends.c.call_id == call_id)).all():
                return [own]
            files = connection.execute(sa.select(f.path, f.first_us, f.last_us)).all()
        made = made_us(call_id)
        if made is None:
            return [[file.path for file in files]]
        of_time = [
            file.path
            for file in files
            if file.first_us is None or file.first_us - ID_SLACK_US <= made <= file.last_us + ID_SLACK_US
        ]
        return [of_time, [file.path for file in files if file.path not in of_time]]

    def _files_since(self, since_us: int, session_id: str | None) -> list[Path]:
        """The files since then, of all sessions or of the groups of one."""
        f = t.files.c
        is_later = sa.or_(f.last_us.is_(None), f.last_us >= since_us)  # a merge writes new files of old calls
        query = sa.select(f.path, f.file_id).where(f.created_us >= since_us, is_later)
        with self._catalog.reading().begin() as connection:
            among = None if session_id is None else files_of_sessions(connection, [session_id], ())
            found = connection.execute(query).all()
            return self._fetched([row.path for row in found if among is None or row.file_id in among])

    def _files_of_group(self, group_id: str) -> list[Path]:
        with self._catalog.reading().begin() as connection:
            return self._fetched([file.path for file in files_with_groups(connection, [group_id])])

    def _fetched(self, paths: Sequence[str]) -> list[Path]:
        self._copies.fetch(paths)
        return [self._config.folder / path for path in paths]

    def _prompt(self, call: pa.Table) -> bytes:
        """The whole prompt of a call: its bases' tokens, then its own suffix."""
        call_id, group_id = call["call_id"][0].as_py(), call["group_id"][0].as_py()
        chain = [call_id]
        files = self._files_of_group(group_id)
        base = call["base_call"][0].as_py()
        if base is not None:
            links = read_calls(files, {"group_id": [group_id]}, ["call_id", "base_call"])
            bases = dict(zip(links["call_id"].to_pylist(), links["base_call"].to_pylist(), strict=True))
            while base is not None:
                if base not in bases:
                    raise StoreCorrupt(f"cannot rebuild call {call_id}: its base {base} is not in the store")
                chain.append(base)
                base = bases[base]
        tokens = rebuild(read_calls(files, {"group_id": [group_id], "call_id": chain}, TOKEN_COLUMNS))
        return next(pack_ids(one.prompt_ids) for one in tokens if one.call_id == call_id)


def _record(row: dict[str, Any], prompt: bytes) -> CallRecord:
    """The record that a row was made of."""
    fields = {name: row[name] for name in CallRecord.__struct_fields__ if row.get(name) is not None}
    fields |= {name: msgspec.json.decode(row[name]) for name in _AS_JSON if row[name] is not None}
    fields["schema"] = row["schema_version"]
    fields["prompt_ids"] = prompt
    fields["output_ids"] = pack_ids(row["output_ids"])
    fields["output_logprobs"] = pack_logprobs(row["output_logprobs"])
    fields["top_ids"] = pack_ids(row["top_ids"] or [])
    for name in ("prompt_logprobs", "sampling_logprobs", "top_logprobs"):
        fields[name] = pack_logprobs(row[name] or [])
    fields["spans"] = tuple(VersionSpan(**span) for span in row["spans"])
    return msgspec.convert(fields, CallRecord)
