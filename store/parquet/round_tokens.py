"""What a round did with each call and token of its groups: one Parquet file beside the round's manifest.

Invariant: every number is the trainer's own, as it computed it for the step that trained the token; the file appears
whole or not at all. A round that is trained again writes the same file. It stays as long as the manifests of rounds do.
Where the root is in S3 it is put there too before the round commits, under the hash of its content: of several attempts
the newest is the one that committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from weir.store.atomic_file import written_aside
from weir.store.config import StoreConfig
from weir.store.shared.files import content_digest
from weir.store.shared.object_store import objects_of

TRAINED, DROPPED, CLIPPED_LOW, CLIPPED_HIGH = range(4)
PART_NAMES = ("trained", "dropped by a correction", "clipped, ratio too low", "clipped, ratio too high")
CALLS_IN_A_PIECE = 64  # of the file; a call is found by the least and greatest id of a piece
_LISTS = ("logprobs", "before", "entropies", "advantages")
_SHARED_NAME = re.compile(r"tokens-[0-9a-f]+\.parquet")  # other files of the round lie beside it
_SCHEMA = pa.schema(
    [
        ("call_id", pa.string()),
        ("left_out", pa.string()),
        ("advantage", pa.float32()),
        *((name, pa.list_(pa.float32())) for name in _LISTS),
        ("parts", pa.list_(pa.uint8())),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTrace:
    """The N output tokens of a call in the step that trained them first; all arrays have shape (N,)."""

    call_id: str
    logprobs: npt.NDArray[np.float32]  # of the trained weights before the step, in nats
    before: npt.NDArray[np.float32]  # the logprobs that ratios are taken from: the engine's, or recomputed ones
    entropies: npt.NDArray[np.float32]  # of the trained model's distribution, in nats
    advantages: npt.NDArray[np.float32]
    parts: npt.NDArray[np.uint8]  # TRAINED, DROPPED, CLIPPED_LOW or CLIPPED_HIGH

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in (*_LISTS, "parts")}
        if len(lengths) != 1:
            raise ValueError(f"call {self.call_id}: arrays of a trace differ in length: {sorted(lengths)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCall:
    """A call of a round: trained on with an advantage, or left out for a reason."""

    call_id: str
    left_out: str | None = None
    advantage: float | None = None  # of each token; 0 where tokens have advantages of their own
    trace: TokenTrace | None = None  # where the round kept its tokens


def round_tokens_file(root: Path, round_id: int) -> Path:
    """Where the file of a round is, below the store's folder."""
    return root / _folder(round_id) / "tokens.parquet"


def _folder(round_id: int) -> str:
    return f"rounds/{round_id:08d}"


def write_round_tokens(path: Path, calls: Iterable[RoundCall]) -> None:
    """Write the calls of a round, ordered by id. Raises OSError."""
    ordered = sorted(calls, key=lambda call: call.call_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "call_id": [call.call_id for call in ordered],
            "left_out": [call.left_out for call in ordered],
            "advantage": [call.advantage for call in ordered],
            **{
                name: [None if call.trace is None else getattr(call.trace, name) for call in ordered]
                for name in (*_LISTS, "parts")
            },
        },
        schema=_SCHEMA,
    )
    with written_aside(path) as aside:
        pq.write_table(table, aside, row_group_size=CALLS_IN_A_PIECE, compression="zstd")


def share_round_tokens(config: StoreConfig, round_id: int) -> None:
    """Put the file of a round where other machines find it; nothing where the root is a folder.

    Raises OSError and StoreUnavailable.
    """
    objects = objects_of(config)
    if objects is None:
        return
    path = round_tokens_file(config.folder, round_id)
    with path.open("rb") as file:
        digest = content_digest(iter(lambda: file.read(2**20), b""))
    objects.put(f"{_folder(round_id)}/{path.stem}-{digest}{path.suffix}", path, named_by_content=True)


def find_round_tokens(config: StoreConfig, round_id: int) -> Path:
    """The file of a committed round on this machine, fetched where another one trained it; it may not exist.

    Raises OSError and StoreUnavailable.
    """
    own = round_tokens_file(config.folder, round_id)
    objects = objects_of(config)
    if objects is None or own.exists():
        return own
    for copy in own.parent.glob(f"{own.stem}-*{own.suffix}"):
        return copy
    shared = [one for one in objects.listed(_folder(round_id)) if _SHARED_NAME.fullmatch(PurePosixPath(one.key).name)]
    if not shared:
        return own
    key = max(shared, key=lambda one: one.changed_us).key
    objects.fetch(key, config.folder / key)
    return config.folder / key


def read_round_call(path: Path, call_id: str) -> RoundCall | None:
    """One call of a round; None where the round has no such file, or the file no such call. Raises OSError."""
    if not path.exists():
        return None
    found = pq.read_table(path, filters=[("call_id", "=", call_id)])
    if found.num_rows == 0:
        return None
    row = {name: found.column(name)[0] for name in found.column_names}
    return RoundCall(
        call_id=call_id,
        left_out=row["left_out"].as_py(),
        advantage=row["advantage"].as_py(),
        trace=_trace(call_id, row),
    )


def _trace(call_id: str, row: dict[str, pa.ListScalar]) -> TokenTrace | None:
    if not row["parts"].is_valid:
        return None
    arrays = {name: row[name].values.to_numpy(zero_copy_only=False) for name in (*_LISTS, "parts")}
    return TokenTrace(call_id=call_id, **arrays)
