"""How the processes of a command-line agent are contained, by the levels of the judge's sandbox.

bubblewrap  own mount, PID, IPC, host name and network namespace: the process sees the system's folders and the agent's
            installation read-only, its own working folder as /workspace, its own home as /home/agent, and a network
            with nothing in it but a relay to the proxy. At its end everything that it started ends.
landlock    the kernel refuses files outside of the same folders, TCP to any port but the relay's (from ABI 4), and
            signals to processes outside (from ABI 6). The working folder has its real path.
rlimits     limits only: files and network are those of the user.
At every level the seccomp filter of `kernel_eval/sandbox` applies, less what a command needs (processes, sockets,
signals). If `weir run` is root and the level allows it, every session has an unnamed user of its own.

Not contained: UDP below `bubblewrap`; reading files and all network at `rlimits`; at `rlimits`, without a user of its
own, a process that hides from the list of descendants; at all levels what the module docstring of
`kernel_eval/sandbox/containment.py` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentSandboxUnavailable
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel

WORK, HOME, RUN = "/workspace", "/home/agent", "/run/weir"  # inside bubblewrap
FIRST_UID, NUM_UIDS = 300_000, 60_000  # unnamed users; the judge's workers have those from 200,000
_USER = 1000  # inside a user namespace
_TMP_BYTES, _SHARED_BYTES = 256 << 20, 64 << 20
_ETC = ("alternatives", "ssl", "ca-certificates", "localtime", "mime.types")
_OWN = Path(__file__).resolve().parent
_NETWORK = {
    SandboxLevel.BUBBLEWRAP: "the proxy only",
    SandboxLevel.LANDLOCK: "TCP to the relay's port only; UDP is open",
    SandboxLevel.RLIMITS: "open",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    """What holds the processes of one run: the level, and the folders that they may read."""

    level: SandboxLevel
    own_user: bool  # every session has an unnamed user
    readable: tuple[str, ...]

    @property
    def network(self) -> str:
        """What the processes can reach, in words."""
        return _NETWORK[self.level]

    @property
    def has_mounts(self) -> bool:
        """Whether processes see other paths than the outside does."""
        return self.level is SandboxLevel.BUBBLEWRAP

    def command(self, folder: Path, launcher: Sequence[str]) -> list[str]:
        """The command line of a Python process of this package, contained over a session's folder."""
        python = [sys.executable, "-I", "-B", *launcher]
        if not self.has_mounts:
            return python
        binds = _readable_mounts(self.readable)
        own = [word for name in ("passwd", "group", "hosts") for word in _bind(folder / "etc" / name, f"/etc/{name}")]
        places = [
            *("--bind", str(folder / "work"), WORK, "--bind", str(folder / "home"), HOME),
            *("--ro-bind", str(folder / "run"), RUN),
        ]
        end = ("--remount-ro", "/", "--chdir", WORK, "--", *python)
        return ["bwrap", *_namespaces(self.own_user), *binds, *own, *places, *end]


def choose_enclosure(config: AgentsConfig, words: Sequence[str]) -> Enclosure:
    """The strongest enclosure that works here, or the configured one, for an agent with a command of these `words`.

    Raises `AgentSandboxUnavailable` where the configured level does not work, or the best one is too low.
    """
    wanted = config.command_sandbox
    candidates = [wanted] if wanted else sorted(SandboxLevel, key=lambda level: -level.rank)
    level = next((level for level in candidates if containment.works(level)), None)
    if level is None:
        raise AgentSandboxUnavailable(
            f"the sandbox level {wanted} does not work on this machine; unset agents.command_sandbox"
        )
    if level.rank < config.command_min_sandbox.rank:
        raise AgentSandboxUnavailable(
            f"agents.command_min_sandbox is {config.command_min_sandbox}, agents would run at {level}; install "
            "bubblewrap (and allow user namespaces), or lower command_min_sandbox"
        )
    own = (*program_folders(words[0]), *argument_folders(words[1:]), *(str(path) for path in config.command_readable))
    readable = _outer_first((*system_folders(), *own))
    own_user = os.geteuid() == 0 and (level is not SandboxLevel.BUBBLEWRAP or _works_as_own_user(readable))
    return Enclosure(level=level, own_user=own_user, readable=readable)


def system_folders() -> tuple[str, ...]:
    """What every agent may read: the system's programs, Weir's Python, and the launcher's own files."""
    etc = [f"/etc/{name}" for name in _ETC]
    nss = ["/etc/nsswitch.conf"]
    return tuple(folder for folder in (*containment.readable_folders(), *etc, *nss, str(_OWN)) if Path(folder).exists())


def program_folders(program: str) -> tuple[str, ...]:
    """The folders of an agent's installation: those of the program on PATH, and of what it links to.

    A program in `bin/` or `node_modules/.bin/` has the folder above; a virtual environment also that of its Python.
    """
    found = shutil.which(program)
    if found is None:
        return ()
    places = [Path(found).absolute(), Path(found).resolve()]
    folders = [_installation(place) for place in places]
    for folder in list(folders):
        settings = folder / "pyvenv.cfg"
        if settings.is_file():
            homes = [line.partition("=")[2].strip() for line in settings.read_text().splitlines() if "home" in line[:5]]
            folders += [_installation(Path(home) / "python") for home in homes]
            folders += [_installation(link.resolve()) for link in (folder / "bin").glob("python*")]
    return tuple(str(folder) for folder in folders if str(folder) != "/")


def argument_folders(words: Sequence[str]) -> tuple[str, ...]:
    """What a command's absolute paths name: of a script its folder, since it may import what lies beside it.

    Of a file in a folder that holds more than the agent (that of a home, or one that everybody may write to) the file
    alone; never such a folder itself.
    """
    named = [Path(word) for word in words if word.startswith("/") and Path(word).exists()]
    places = [place for path in named for place in dict.fromkeys((path.absolute(), path.resolve()))]
    folders = [place if place.is_dir() or _holds_more(place.parent) else place.parent for place in places]
    return tuple(str(folder) for folder in folders if not (folder.is_dir() and _holds_more(folder)))


def _holds_more(folder: Path) -> bool:
    return Path.home().is_relative_to(folder) or bool(folder.stat().st_mode & 0o002)


def _installation(program: Path) -> Path:
    for parent in program.parents:
        if parent.name == "node_modules":
            return parent
    above = program.parent.parent
    is_private = Path.home().is_relative_to(above) or above == Path.home() / ".local"  # more than an installation
    return above if program.parent.name in ("bin", ".bin") and not is_private else program.parent


def _outer_first(folders: Sequence[str]) -> tuple[str, ...]:
    """Without repetitions; a folder stands before those inside it, as mounting needs."""
    return tuple(sorted(dict.fromkeys(folders), key=lambda folder: len(Path(folder).parts)))


def _namespaces(own_user: bool) -> tuple[str, ...]:
    user = (
        ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
        if own_user
        else ("--unshare-user", "--uid", str(_USER), "--gid", str(_USER), "--cap-drop", "ALL")
    )
    return (
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", *user),
        *("--die-with-parent", "--new-session", "--hostname", "agent", "--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(_SHARED_BYTES), "--tmpfs", "/dev/shm"),
        *("--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"),
    )


def _readable_mounts(readable: Sequence[str]) -> list[str]:
    """Mount folders read-only; the folders above them are open to every user, which bubblewrap would not make them."""
    above = {parent for one in (*readable, HOME, RUN, "/etc/passwd") for parent in Path(one).parents} - {Path("/")}
    made = [p for p in sorted(above, key=lambda p: len(p.parts)) if not any(p.is_relative_to(one) for one in readable)]
    folders = [word for parent in made for word in ("--perms", "0755", "--dir", str(parent))]
    return folders + [word for one in readable for word in ("--ro-bind", one, one)]


def _bind(source: Path, target: str) -> tuple[str, ...]:
    return ("--ro-bind", str(source), target)


def inside_user(uid: int | None) -> int:
    """The user id that a process sees: its session's own, or that of the user namespace."""
    return uid if uid is not None else _USER


def _works_as_own_user(readable: Sequence[str]) -> bool:
    """Whether root can make the namespaces without a user namespace, and an unnamed user can start the launcher."""
    binds = _readable_mounts(readable)
    change = "".join(f"os.{call}({FIRST_UID}, {FIRST_UID}, {FIRST_UID}); " for call in ("setresgid", "setresuid"))
    code = f"import os; os.setgroups([]); {change}import weir.agents.command.launcher"
    probe = ["bwrap", *_namespaces(True), *binds, "--chdir", "/", "--", sys.executable, "-I", "-B", "-c", code]
    return subprocess.run(probe, capture_output=True).returncode == 0
