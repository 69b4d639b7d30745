"""The optimiser's state at a version that was kept without it: earlier rounds are trained again, from the last state.

Invariant: nothing is published or stored; the weights after the last repeated round are those of the version, to the
bit, or the round is refused. Repeated rounds take verdicts and calls from the store, as `weir round --replay` does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError
from weir.trainer.rounds.claims import ClaimedRound, parent_folder, pinned_calls
from weir.trainer.rounds.prepare import prepare
from weir.trainer.rounds.supervised_mix import MixedData
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.timings import RoundTimes
from weir.trainer.versions.version_folder import MANIFEST, STATE_FILE, file_entry, has_state, read_manifest

if TYPE_CHECKING:  # torch is imported with the first backend
    from weir.trainer.backend import Backend

_REMEDY = 'or set trainer.missing_state = "fresh", which begins with new moments'


def lacks_state(folder: Path) -> bool:
    """Whether a round made a folder's weights and kept no optimiser state with them."""
    made = (folder / MANIFEST).exists() and read_manifest(folder).parent is not None
    return made and not has_state(folder)


def restored(
    folder: Path,
    catalog: Catalog,
    store: StoreConfig,
    config: TrainerConfig,
    *,
    model_path: Path,
    mixed: MixedData,
    console: Console,
) -> Backend:
    """The backend at a version folder, with the optimiser's state, from the newest state before it.

    Raises `RoundError` where a round in between cannot be repeated, or ends at other weights.
    """
    from weir.trainer.backend import open_backend

    place, chain = _last_state(folder, catalog, store, model_path)
    numbers = ", ".join(str(claimed.round) for claimed in chain)
    console.print(f"{folder} has no optimiser state: training rounds {numbers} again from {place}", soft_wrap=True)
    backend = open_backend(place, config, reference=Path(config.reference_path or model_path))
    for claimed in chain:
        _check_settings(claimed, config)
        data = prepare(claimed, pinned_calls(store, claimed, config), catalog, config, console, RoundTimes())
        supervised = mixed.of_round(claimed, config, backend.num_steps, len(data.samples))
        seed = claimed.seed + claimed.round
        backend.train(data.samples, fresh_version=claimed.parent, seed=seed, supervised=supervised)
        with tempfile.TemporaryDirectory(dir=store.folder) as name:
            backend.save(Path(name))  # it also counts the rounds since the last state
            if claimed is chain[-1]:
                _check_weights(Path(name), folder)
    backend.folder = folder
    return backend


def _last_state(
    folder: Path, catalog: Catalog, store: StoreConfig, model_path: Path
) -> tuple[Path, list[ClaimedRound]]:
    """The newest folder with a state, or the first weights, and the rounds since then."""
    rounds = {row.round_id: row.manifest for row in catalog.rounds() if row.state == "committed"}
    chain: list[ClaimedRound] = []
    place = folder
    while lacks_state(place):
        manifest = read_manifest(place)
        round_manifest = None if manifest.round is None else rounds.get(manifest.round)
        if round_manifest is None:  # made by a rollback
            raise RoundError(
                f"version {manifest.version} has no optimiser state, and no round that could be repeated made it; roll "
                f"back to a version that has {STATE_FILE}, {_REMEDY}"
            )
        claimed = msgspec.convert(round_manifest, ClaimedRound)
        chain.insert(0, claimed)
        place = parent_folder(store.folder, claimed, model_path)
    return place, chain


def _check_settings(claimed: ClaimedRound, config: TrainerConfig) -> None:
    ours, theirs = config.pinned(), claimed.config
    changed = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
    if changed:
        raise RoundError(
            f"round {claimed.round} cannot be repeated for its optimiser state: {', '.join(changed)} changed since; "
            f"set them as they were until a round has kept its state, {_REMEDY}"
        )


def _check_weights(found: Path, folder: Path) -> None:
    for file in sorted(folder.glob("*.safetensors")):
        if not (found / file.name).exists() or file_entry(found / file.name) != file_entry(file):
            raise RoundError(
                f"training again ended at other weights than {file}: another build of torch or another machine, "
                f"perhaps; {_REMEDY.removeprefix('or ')}"
            )
