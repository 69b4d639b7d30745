"""A zygote's imports are part of each of its children: it must not import the server's libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVERS_ONLY = {"cachetools", "httpx", "prometheus_client", "pynvml", "stamina", "starlette", "uvicorn"}
PREPARED = """
import sys
sys.modules["pynvml"] = None  # as `zygote.start` does
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.zygotes import {name}
{name}.prepare(SandboxLevel.RLIMITS, *{arguments})
print(*(name for name, module in sys.modules.items() if module is not None))
"""


@pytest.mark.parametrize(
    ("name", "arguments", "parts"),
    [
        ("judge", (), {"worker", "compiler", "machines", "server"}),
        ("player", (), {"judge", "worker", "recording", "compiler", "machines", "server"}),
        ("compiler", ("sm_90",), {"judge", "replay", "ir", "machines", "server"}),
        ("program", (), {"judge", "worker", "machines", "server"}),
    ],
)
def test_a_zygote_has_imported_neither_the_servers_libraries_nor_the_other_side(
    name: str, arguments: tuple[str, ...], parts: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARED.format(name=name, arguments=arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    imported = done.stdout.split()
    assert not SERVERS_ONLY & {module.partition(".")[0] for module in imported}
    assert not parts & {module.split(".")[2] for module in imported if module.startswith("weir.kernel_eval.")}
    if name == "program":
        assert "torch" not in imported
    if name == "player":
        assert "triton" not in imported
