"""Members that the file of settings names while a controller runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.members import members_of, row_of
from weir.scripts.live.recorder import Recorder
from weir.scripts.live.roster import Roster
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, members
from weir.store.catalog.leases import held_lease

HEAD = '[router]\nport = 3\n[engine]\ncount = 0\nurls = ["http://127.0.0.1:1"]\n[store]\nroot = "{store}"\n'


def write(file: Path, *names: str, more: str = "") -> None:
    """Members that do both, each with an engine of its own."""
    tables = (f'[[cluster.members]]\nname = "{name}"\nurl = "http://127.0.0.1:{ord(name)}"\n{more}' for name in names)
    file.write_text(HEAD.format(store=file.parent / "store") + "".join(tables))


def test_members_that_the_file_names_later_are_taken_in_and_nothing_else_changes(tmp_path: Path) -> None:
    file, lines = tmp_path / "weir.toml", list[str]()
    write(file, "a", "b")
    settings = load_settings(file)
    named = members_of(settings.cluster, trainer_config(settings))
    catalog = Catalog.open(settings.store)
    with held_lease(catalog, CLUSTER, "holder", 60.0) as lease:
        recorder = Recorder(catalog, lease, 1.0, lines.append)
        recorder.take_over([row_of(member) for member in named.values()])
        roster = Roster(file, named, recorder, lines.append)
        roster.look()
        assert lines == [] and list(named) == ["a", "b"]
        write(file, "a", "b", "c")
        roster.look()
        assert list(named) == ["a", "b", "c"]
        assert lines == [f"member c is taken in: {file} names it now"]
        asyncio.run(recorder.flush())
        assert [row.name for row in members(catalog)] == ["a", "b", "c"]
        write(file, "a", "b", "c", "d", more='tags = ["flies"]\n')
        roster.look()
        roster.look()
        assert len(lines) == 2 and "is not taken" in lines[1] and list(named) == ["a", "b", "c"]
        write(file, "a", "c", "d")
        roster.look()
        assert list(named) == ["a", "b", "c", "d"], "one that is not named any more stays"
        assert lines[3].startswith(f"{file} no longer says the same of b: stop `weir train`")
        file.unlink()
        roster.look()
        assert len(lines) == 4, "it may just be written anew"
    catalog.close()
