"""The backend that stays in memory between rounds, and is loaded again where the folder or the settings differ.

Invariant: weights that were stepped and never became a version are forgotten, so that the next round starts from a
folder again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weir.trainer.settings.config import TrainerConfig

if TYPE_CHECKING:  # torch is imported with the first backend, so that a start without groups costs little
    from weir.trainer.backend import Backend


class LoadedBackend:
    """At most one backend. `model_path` holds the reference weights where the settings name no others."""

    def __init__(self, model_path: Path) -> None:
        self._model_path = model_path
        self._backend: Backend | None = None

    def at(self, folder: Path, config: TrainerConfig) -> Backend:
        """The backend at a version folder, loaded unless it is in memory. Raises as `open_backend`."""
        from weir.trainer.backend import open_backend

        if self._backend is None or not self.is_at(folder, config):
            reference = Path(config.reference_path or self._model_path)
            self._backend = open_backend(folder, config, reference=reference)
        return self._backend

    def will_load(self, folder: Path, config: TrainerConfig) -> bool:
        """Whether a round from a folder reads its weights from disk; torchrun's processes do in every round."""
        return config.processes > 1 or not self.is_at(folder, config)

    def is_at(self, folder: Path, config: TrainerConfig) -> bool:
        """Whether the backend stands at a folder, with the state of its optimiser."""
        backend = self._backend
        return backend is not None and backend.folder.absolute() == folder.absolute() and backend.config == config

    def put(self, backend: Backend) -> None:
        """Keep a backend that was opened elsewhere."""
        self._backend = backend

    def forget(self) -> None:
        """Drop the backend: the next round loads its weights from a folder."""
        self._backend = None
