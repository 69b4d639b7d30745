"""docs/sglang.md, taken apart: its blocks in order, and a folder in which its commands run as they stand there.

Only what a test machine needs is changed: ports, SGLang's environment, and the flags and variables for a CPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sglang_server import ENVIRONMENT, FLAGS, VARIABLE

from weir.scripts.launch.servers import free_ports_in_row

PAGE = Path(__file__).parents[2] / "docs" / "sglang.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SERVERS = ("weir up", "weir proxy", "sglang-router launch", "SGLANG_")
_PORTS = (8700, 8300, 30000, 30001, 31000)  # as the page and the defaults have them
_PORT = re.compile(rf"\b({'|'.join(map(str, _PORTS))})\b")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of the page."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a bash block; a line that ends in a backslash continues."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks_of_page() -> tuple[list[Block], list[Block]]:
    """The blocks of the part by `weir up`, and of the part by hand."""
    parts = PAGE.read_text().split("\n## ")
    first, second = (next(part for part in parts if part.startswith(title)) for title in ("By `weir up`", "By hand"))
    return _blocks(first), _blocks(second)


def _blocks(part: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(part)]


@dataclass(kw_only=True)
class Place:
    """A folder in which the page's commands run, and the servers that they started."""

    folder: Path
    ports: dict[int, int] = field(default_factory=dict)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = free_ports_in_row(len(_PORTS))
        self.ports = {port: first + number for number, port in enumerate(_PORTS)}

    def url(self, port: int) -> str:
        """Where the server listens that the page has on this port."""
        return f"http://127.0.0.1:{self.ports[port]}"

    def here(self, text: str) -> str:
        """A text of the page with this machine's ports and environment of SGLang."""
        text = text.replace("/envs/sglang", os.environ[VARIABLE])
        return _PORT.sub(lambda found: str(self.ports[int(found.group())]), text)

    def write_settings(self, block: Block) -> None:
        """The page's weir.toml, with a CPU's flags and this machine's ports."""
        flags = ", ".join(f'"{flag}"' for flag in FLAGS)
        variables = ", ".join(f'{name} = "{value}"' for name, value in self.variables().items())
        text = block.text if "[proxy]\n" in block.text else f"{block.text}\n[proxy]\n"
        text = text.replace("args = []", f"args = [{flags}]\nenv = {{ {variables} }}\nport = 31000")
        text = text.replace("[proxy]\n", "[proxy]\nport = 8700\n")
        text += "\n[kernel_eval]\nport = 8300\n[router]\nport = 30000\nprometheus_port = 30001\n"
        (self.folder / "weir.toml").write_text(self.here(text))

    def variables(self) -> Mapping[str, str]:
        """What SGLang on a CPU needs in its environment."""
        home = self.folder / "sglang-home"
        home.mkdir(exist_ok=True)
        return {**ENVIRONMENT, "HOME": str(home), "TMPDIR": str(home)}

    def run(self, command: str, *, status: int = 0) -> str:
        """A command of the page, to its end; what it printed."""
        if command.startswith(_SERVERS):
            self.start(command)
            return ""
        done = subprocess.run(
            ["bash", "-c", self.here(command)], cwd=self.folder, env=self._environment(), capture_output=True, text=True
        )
        assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(self, command: str) -> None:
        """A command of the page that serves, until its server answers."""
        name = re.sub(r"\W+", "-", command)[:24]
        line, environment = self.here(command), self._environment()
        if command.startswith("SGLANG_"):
            line, environment = f"{line} {' '.join(FLAGS)}", environment | self.variables()
        if command.startswith("sglang-router"):
            line = f"{line} --prometheus-port {self.ports[30001]}"
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {line}"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.servers.append(process)
        self._wait(process, self._ready_url(command), self.folder / f"{name}.log")

    def _ready_url(self, command: str) -> str:
        port, path = next(
            answer
            for start, answer in {
                "weir": (8700, "/readyz"),
                "sglang-router": (30000, "/health"),
                "SGLANG_": (31000, "/health"),
            }.items()
            if command.startswith(start)
        )
        return self.url(port) + path

    def _wait(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        while process.poll() is None:
            try:
                if httpx.get(url, trust_env=False, timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"it ended with {process.returncode}: {log.read_text(errors='replace')[-4000:]}")

    def stop(self) -> None:
        """Stop the servers, the last one first."""
        for process in reversed(self.servers):
            process.terminate()
            process.wait(60)

    @staticmethod
    def _environment() -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
