"""Which folders an agent may read, which level it gets, and what is kept of what it printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.agents.command.enclosure import argument_folders, choose_enclosure, program_folders
from weir.agents.command.output_file import OutputFile
from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentSandboxUnavailable
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_an_installation_is_readable_and_what_it_links_to(tmp_path: Path) -> None:
    module = program(tmp_path / "npm" / "node_modules" / "@some" / "agent" / "bin" / "agent.js")
    link = tmp_path / "npm" / "node_modules" / ".bin" / "agent"
    link.parent.mkdir()
    link.symlink_to(module)
    assert set(program_folders(str(link))) == {str(tmp_path / "npm" / "node_modules")}

    python = program(tmp_path / "python" / "bin" / "python3.11")
    venv = tmp_path / "venv"
    agent = program(venv / "bin" / "agent")
    (venv / "bin" / "python").symlink_to(python)
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path / 'python' / 'bin'}\n")
    assert set(program_folders(agent)) == {str(venv), str(tmp_path / "python")}


def test_a_program_in_the_users_home_does_not_open_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert set(program_folders(program(tmp_path / "bin" / "agent"))) == {str(tmp_path / "bin")}
    assert set(program_folders(program(tmp_path / ".local" / "bin" / "agent"))) == {str(tmp_path / ".local" / "bin")}
    assert set(program_folders(program(tmp_path / "agent"))) == {str(tmp_path)}


def test_a_script_among_the_arguments_is_readable_with_its_folder(tmp_path: Path) -> None:
    script = program(tmp_path / "agents" / "loop.py")
    link = tmp_path / "links" / "loop.py"
    link.parent.mkdir()
    link.symlink_to(script)
    assert argument_folders(("-u", script, "{model}", "loop.py", "/no/such/file")) == (str(tmp_path / "agents"),)
    assert set(argument_folders((str(link),))) == {str(tmp_path / "agents"), str(tmp_path / "links")}
    assert argument_folders((str(tmp_path / "agents"),)) == (str(tmp_path / "agents"),)


def test_of_a_home_or_a_shared_folder_only_the_named_file_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    scripts = (program(home / "loop.py"), program(shared / "loop.py"))
    shared.chmod(0o1777)
    monkeypatch.setenv("HOME", str(home))
    assert argument_folders(scripts) == scripts
    assert argument_folders((str(home), str(tmp_path), "/", str(shared))) == ()


def test_a_machine_below_the_least_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "works", lambda level: level is SandboxLevel.RLIMITS)
    assert choose_enclosure(AgentsConfig(), ["sh"]).level is SandboxLevel.RLIMITS
    with pytest.raises(AgentSandboxUnavailable, match="command_min_sandbox is landlock, agents would run at rlimits"):
        choose_enclosure(AgentsConfig(command_min_sandbox=SandboxLevel.LANDLOCK), ["sh"])
    with pytest.raises(AgentSandboxUnavailable, match="bubblewrap does not work on this machine"):
        choose_enclosure(AgentsConfig(command_sandbox=SandboxLevel.BUBBLEWRAP), ["sh"])


@pytest.mark.parametrize("piece", [1, 3, 1000])
@pytest.mark.parametrize("length", [0, 5, 10, 11, 300])
def test_of_an_output_both_ends_are_kept(tmp_path: Path, piece: int, length: int) -> None:
    printed = bytes(65 + n % 26 for n in range(length))
    output = OutputFile(tmp_path / "output", 10)
    for start in range(0, length, piece):
        output.add(printed[start : start + piece])
    output.close()
    left_out = max(0, length - 10)
    note = f"\n[weir: {left_out} bytes left out]\n".encode() if left_out else b""
    assert (tmp_path / "output").read_bytes() == (printed[:5] + note + printed[5:][-5:] if length else b"")
    assert output.total == length
