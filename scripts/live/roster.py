"""Members that weir.toml names only while a controller runs: they join it.

Invariant: a file that is wrong, or would change members that are there, is reported once and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from weir.cluster.config import ClusterMember
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.settings import DEFAULT_FILE, load_settings
from weir.scripts.live.members import check_members, members_of, row_of
from weir.scripts.live.recorder import Recorder

LOOK_S = 2.0  # between two looks at the file


class Roster:
    """The members of a run, and the file that names them."""

    def __init__(
        self,
        config_path: Path | None,
        members: dict[str, ClusterMember],
        recorder: Recorder,
        say: Callable[[str], None],
    ) -> None:
        """`members` is the run's own; what it gets is looked at like the others."""
        self._config_path, self._members, self._recorder, self._say = config_path, members, recorder, say
        self._file = config_path or Path(DEFAULT_FILE)
        self._read = self._content()

    async def watch(self) -> None:
        """Look at the file now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Take members in that the file names since the last look."""
        content = self._content()
        if content is None or content == self._read:
            return
        self._read = content
        try:
            named = self._named()
        except UsageError as error:
            self._say(f"{self._file} was changed, and is not taken: {error}")
            return
        for name, member in named.items():
            if name not in self._members:
                self._recorder.add(row_of(member))
                self._members[name] = member
                self._say(f"member {name} is taken in: {self._file} names it now")
        if differ := [name for name, member in self._members.items() if not _says(named.get(name), member)]:
            self._say(
                f"{self._file} no longer says the same of {', '.join(differ)}: stop `weir train` and start it again "
                "for that; an engine leaves by being stopped"
            )

    def _content(self) -> bytes | None:
        """None where there is no file: it may just be written anew."""
        try:
            return self._file.read_bytes()
        except OSError:
            return None

    def _named(self) -> dict[str, ClusterMember]:
        settings = load_settings(self._config_path)
        trainer = trainer_config(settings)
        named = members_of(settings.cluster, trainer)
        check_members(named, settings.cluster, trainer, settings.proxy.level)
        return named


def _says(named: ClusterMember | None, member: ClusterMember) -> bool:
    """Whether the file says that of a member; the URL of one whose engine is started here is not the file's."""
    return named is not None and named == (member.model_copy(update={"url": None}) if named.is_placed else member)
