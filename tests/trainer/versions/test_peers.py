"""Helpers pass versions on: the store is read once or twice for all of them, and what arrives has its hash."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import save_file
from support_servers import find_free_port
from support_staged import write_stored

from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.versions import peers as peers_module
from weir.trainer.versions.peer_server import PeerServer
from weir.trainer.versions.peers import Held, PeerVersions, above
from weir.trainer.versions.sources import FolderVersions, fetch
from weir.trainer.versions.version_folder import version_path

WEIGHTS = "model.safetensors"


class CountedStore(FolderVersions):
    """A store's folder, and the bytes of files that were read of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.num_read = 0

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        super().fetch(number, manifest, name, target)
        self.num_read += target.stat().st_size


class Helpers:
    """Helpers in their order; those that are `down` answer nothing."""

    def __init__(self, root: Path, store: Path, count: int, down: set[int]) -> None:
        self.store, self.said = CountedStore(store), list[str]()
        self.folders = [root / str(number) for number in range(count)]
        self.urls = [f"http://127.0.0.1:{find_free_port()}" for _ in range(count)]
        self.held = [Held(folder) for folder in self.folders]
        self.sources = [
            PeerVersions(self.store, held, above(self.urls, url), self.said.append) for held, url in self.pairs
        ]
        self.up = [number for number in range(count) if number not in down]
        self.open = ExitStack()
        for number in self.up:
            self.open.callback(PeerServer(self.urls[number], self.held[number]).close)

    @property
    def pairs(self) -> list[tuple[Held, str]]:
        return list(zip(self.held, self.urls, strict=True))

    def fetch_all(self, number: int, only: list[int] | None = None) -> None:
        """All that are up at once, the last ones first."""
        asked = list(reversed(self.up if only is None else only))
        with ThreadPoolExecutor(len(asked)) as at_once:
            list(at_once.map(lambda one: fetch(self.sources[one], self.folders[one], number), asked))

    def content(self, one: int, number: int) -> bytes:
        return (version_path(self.folders[one], number) / WEIGHTS).read_bytes()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as at_end:

        def helpers(count: int, *, down: set[int] = frozenset()) -> Helpers:  # type: ignore[assignment]
            made = Helpers(tmp_path / "helpers", tmp_path / "store", count, down)
            at_end.enter_context(made.open)
            return made

        yield helpers


def write(root: Path, number: int) -> bytes:
    """A version, as a difference to the one before; its weights."""

    def write_files(folder: Path) -> None:
        values = torch.arange(100_000, dtype=torch.float32)
        values[::1000] += number
        save_file({"w": values}, folder / WEIGHTS)
        (folder / "config.json").write_text("{}")

    return (write_stored(root, number, write_files, full_every=10).path / WEIGHTS).read_bytes()


def stored_bytes(root: Path, number: int, *names: str) -> int:
    return sum((version_path(root, number) / name).stat().st_size for name in names)


def test_the_store_is_read_once_for_helpers_that_begin_together_late_and_with_differences(
    make: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    content = write(store, 1)
    helpers = make(7)
    helpers.fetch_all(1, only=[0, 1, 2, 3, 4, 5])
    assert all(helpers.content(one, 1) == content for one in range(6))
    assert helpers.store.num_read == stored_bytes(store, 1, WEIGHTS, "config.json")
    helpers.fetch_all(1, only=[6])
    assert helpers.content(6, 1) == content
    assert helpers.store.num_read == stored_bytes(store, 1, WEIGHTS, "config.json")
    helpers.store.num_read = 0
    content = write(store, 2)
    helpers.fetch_all(2)
    assert all(helpers.content(one, 2) == content for one in range(7))
    assert helpers.store.num_read == stored_bytes(store, 2, f"{WEIGHTS}.delta", "config.json")
    assert helpers.said == []


def test_a_late_helper_gets_from_others_what_the_store_has_as_a_difference_only(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedStore, "offers", lambda *_: False)  # as object storage, which holds no whole file then
    store = tmp_path / "store"
    helpers = make(3)
    write(store, 1)
    helpers.fetch_all(1, only=[0])
    content = write(store, 2)
    helpers.fetch_all(2, only=[0])
    read = helpers.store.num_read
    helpers.fetch_all(2, only=[2])
    assert helpers.content(2, 2) == content
    assert helpers.store.num_read == read
    helpers.open.close()  # all are down: the chain comes from the store
    helpers.fetch_all(2, only=[1])
    assert helpers.content(1, 2) == content
    assert helpers.store.num_read > read


def test_below_a_helper_that_is_down_the_store_is_read_twice_at_most(make: Any, tmp_path: Path) -> None:
    content = write(tmp_path / "store", 1)
    whole = stored_bytes(tmp_path / "store", 1, WEIGHTS, "config.json")
    helpers = make(6, down={0})
    helpers.fetch_all(1)
    assert all(helpers.content(one, 1) == content for one in helpers.up)
    assert helpers.store.num_read == 2 * whole  # by the two below it
    assert any("the next one above is asked" in said for said in helpers.said)


def test_what_a_helper_passes_on_damaged_is_fetched_from_above(make: Any, tmp_path: Path) -> None:
    content = write(tmp_path / "store", 1)
    helpers = make(4)
    helpers.fetch_all(1, only=[0, 1])
    (version_path(helpers.folders[1], 1) / WEIGHTS).write_bytes(content[:-1] + b"\1")
    helpers.fetch_all(1, only=[3])  # below 1, which is below 0
    assert helpers.content(3, 1) == content
    assert "is not what the manifest says" in helpers.said[0]
    assert helpers.store.num_read == stored_bytes(tmp_path / "store", 1, WEIGHTS, "config.json")


def test_a_helper_that_stands_still_is_passed_over_and_one_that_is_ahead_is_named(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "STANDS_STILL_S", 0.0)
    content = write(tmp_path / "store", 1)
    helpers = make(2)
    helpers.fetch_all(1, only=[1])
    assert helpers.content(1, 1) == content
    assert "does not come" in helpers.said[0]
    write(tmp_path / "store", 2)
    helpers.fetch_all(2, only=[0])
    second = PeerVersions(helpers.store, Held(tmp_path / "late"), [helpers.urls[0]], helpers.said.append)
    with pytest.raises(VersionError, match="a newer version is"):
        fetch(second, tmp_path / "late", 1)
    second.end()


@pytest.mark.parametrize(
    "status, headers, content, why",
    [
        (404, {}, b"", "is no address of a helper: it answers 404"),
        (200, {}, b"<html>sign in</html>", "bytes): it has 20"),
        (200, {"content-length": "1000000000"}, b"", "bytes): it has 1000000000"),
    ],
)
def test_something_else_at_the_address_of_a_helper_costs_one_question(
    make: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    headers: dict[str, str],
    content: bytes,
    why: str,
) -> None:
    monkeypatch.setattr(CountedStore, "offers", lambda *_: False)  # as object storage, which holds no whole file then
    store, asked = tmp_path / "store", list[str]()
    write(store, 1)
    newest = write(store, 2)

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content if self.command == "GET" else b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(server.serve_forever, 0.05)
        try:
            helpers = make(1)
            url = f"http://127.0.0.1:{server.server_port}"
            below = PeerVersions(helpers.store, Held(tmp_path / "below"), [url], helpers.said.append)
            fetch(below, tmp_path / "below", 2)
        finally:
            server.shutdown()
            server.server_close()
    assert (version_path(tmp_path / "below", 2) / WEIGHTS).read_bytes() == newest
    assert len(helpers.said) == 1
    assert why in helpers.said[0]
    assert len(asked) == 1


def test_only_files_of_held_versions_are_served_and_a_taken_address_is_refused(make: Any, tmp_path: Path) -> None:
    write(tmp_path / "store", 1)
    helpers = make(1)
    helpers.fetch_all(1)
    (helpers.folders[0] / "secret").write_text("secret")
    digest = "0" * 64
    for path in (f"/versions/1/{digest}/..%2Fsecret", f"/versions/1/{digest}/{WEIGHTS}", "/secret"):
        assert httpx.get(helpers.urls[0] + path, trust_env=False).status_code == 404
    with pytest.raises(TrainerUsageError, match="cannot serve versions at"):
        PeerServer(helpers.urls[0], helpers.held[0])
