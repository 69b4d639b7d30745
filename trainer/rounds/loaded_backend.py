"""The backend that stays in memory between rounds, and is loaded again where the folder or the settings differ.

Invariant: weights that were stepped and never became a version are forgotten, so that the next round starts from a
folder again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from weir.trainer.errors import TrainerError
from weir.trainer.settings.config import TrainerConfig

if TYPE_CHECKING:  # torch is imported with the first backend, so that a start without groups costs little
    from weir.trainer.backend import Backend
    from weir.trainer.publishing.rank_sender import SendingRanks


class LoadedBackend:
    """At most one backend. `model_path` holds the reference weights where the settings name no others.

    `away` is a folder on whose disk tensors of a CPU may lie while others have its memory.
    """

    def __init__(self, model_path: Path, away: Path) -> None:
        self.stays = True  # whether a further round may come, which would use a backend that sleeps
        self._model_path = model_path
        self._away = away
        self._backend: Backend | None = None
        self._asleep = False

    def at(self, folder: Path, config: TrainerConfig) -> Backend:
        """The backend at a version folder, loaded unless it is in memory. Raises as `open_backend`."""
        from weir.trainer.backend import open_backend

        if self._backend is None or not self.is_at(folder, config):
            self.forget()
            reference = Path(config.reference_path or self._model_path)
            self._backend = open_backend(folder, config, reference=reference)
        return self._backend

    def is_at(self, folder: Path, config: TrainerConfig) -> bool:
        """Whether the backend stands at a folder, with the state of its optimiser, and no process of it has died."""
        backend = self._backend
        if backend is None or not getattr(backend, "is_alive", True):
            return False
        return backend.folder.absolute() == folder.absolute() and backend.config == config

    def sending(self, folder: Path, config: TrainerConfig) -> SendingRanks | None:
        """The backend where the settings have ranks send, and it is ranks that hold a folder's weights."""
        backend = self._backend if config.publish.by_ranks else None
        if backend is None or self._asleep or not getattr(backend, "is_alive", False) or not hasattr(backend, "offer"):
            return None
        return cast("SendingRanks", backend) if backend.folder.absolute() == folder.absolute() else None

    def put(self, backend: Backend) -> None:
        """Keep a backend that was opened elsewhere."""
        self._backend = backend

    def wake(self) -> None:
        """Have the backend's tensors on the device again. Raises what reading them raises, and forgets them then."""
        if self._asleep:
            self._asleep = False
            wake = getattr(self._backend, "wake", None)
            try:
                if wake is not None:
                    wake()
            except BaseException:
                self.forget()
                raise

    def sleep(self, needed_bytes: int | None) -> None:
        """Put the backend's tensors off the device; a backend that cannot do that is forgotten.

        `needed_bytes`: what others need there; None: everything goes.
        """
        from weir.trainer.model.put_away import give_back

        put_away = getattr(self._backend, "sleep", None)
        if put_away is None or not self.stays:
            self.forget()
        elif not self._asleep:
            try:
                put_away(self._away, needed_bytes)
                self._asleep = True
            except TrainerError:  # no room for it elsewhere: the folder has it
                self.forget()
        give_back()

    def forget(self) -> None:
        """Drop the backend, and end its processes: the next round loads its weights from a folder."""
        if (close := getattr(self._backend, "close", None)) is not None:
            close()
        self._backend = None
        self._asleep = False
