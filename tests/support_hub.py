"""A Hugging Face hub of our own: the routes that huggingface_hub asks for a model repository, over a real socket."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

from support_http import QuietHandler, listening

COMMIT = "1234567890abcdef1234567890abcdef12345678"


@dataclass
class Hub:
    """Repositories by name, and what was asked of them."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)  # by "ORG/NAME/FILE"
    gated: set[str] = field(default_factory=set)
    stop_at: int | None = None  # send this many bytes of the next safetensors file, then nothing more
    stopped: threading.Event = field(default_factory=threading.Event)
    starts: list[tuple[str, int]] = field(default_factory=list)  # file and first byte of each download

    def repository(self, name: str) -> dict[str, bytes]:
        """The files of a repository."""
        return {key.removeprefix(f"{name}/"): value for key, value in self.files.items() if key.startswith(f"{name}/")}


class Handler(QuietHandler):
    """The hub's API for one repository a request."""

    hub: ClassVar[Hub]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.strip("/").split("/")
        api = path[:2] == ["api", "models"]
        repo, rest = "/".join(path[2:4] if api else path[:2]), path[4:] if api else path[2:]
        files = self.hub.repository(repo)
        revision = rest[1] if len(rest) > 1 else "main"
        if not files:
            self.refuse(404, "RepoNotFound")
        elif repo in self.hub.gated and "authorization" not in self.headers:
            self.refuse(401, "GatedRepo")
        elif revision not in {"main", COMMIT}:
            self.refuse(404, "RevisionNotFound")
        elif api and rest[:1] == ["tree"]:
            self.answer(200, json.dumps([entry(name, content) for name, content in files.items()]).encode())
        elif api:
            siblings = [{"rfilename": name, **entry(name, content)} for name, content in files.items()]
            self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode())
        else:
            self.send_file("/".join(rest[2:]), files["/".join(rest[2:])])

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("x-error-code", code)
        self.send_header("content-length", "0")
        self.end_headers()

    def send_file(self, name: str, content: bytes) -> None:
        start = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if "range" in self.headers else 200)
        self.send_header("etag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("x-repo-commit", COMMIT)
        self.send_header("accept-ranges", "bytes")
        self.send_header("content-length", str(len(content) - start))
        if start:
            self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.hub.starts.append((name, start))
        if self.hub.stop_at is not None and name.endswith(".safetensors"):
            self.wfile.write(content[start : self.hub.stop_at])
            self.wfile.flush()
            self.hub.stopped.set()
            with contextlib.suppress(ConnectionError):
                self.connection.recv(1)  # until the client is gone
            return
        self.wfile.write(content[start:])


def entry(name: str, content: bytes) -> dict[str, object]:
    """A file as the hub lists it; weights are kept by their hash."""
    found: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": "0" * 40, "blobId": "0" * 40}
    if name.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        found["lfs"] = {"oid": sha256, "sha256": sha256, "size": len(content), "pointerSize": 130}
    return found


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub without repositories."""
    hub = Hub(url="")
    with listening(type("HubHandler", (Handler,), {"hub": hub})) as hub.url:
        yield hub
