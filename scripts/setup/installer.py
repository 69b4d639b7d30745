"""What `scripts/install` does: .venv, and in it Weir with the extras that are asked for, pinned by requirements.lock.

Invariants: a call does nothing if the same files and extras are installed; installed extras are kept; the next call
repairs an interrupted installation. uv installs; if uv is unavailable, pip does, and a message says so. Indexes,
certificates and proxies are those of pip's configuration. Only the standard library is used: nothing is installed yet.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK = "requirements.lock"
STAMP = ".weir-installed"  # in .venv: of which files, with which extras
UNFINISHED = ".weir-installing"  # in .venv, while an installation runs
OLDEST_UV = (0, 7)
BEAT_S = 10.0
LOW_DISK_BYTES = 3_000_000_000
HEAVY = ("torch", "triton", "numpy")  # packages that every process of the judge imports
# pip's settings that uv has too, and uv's names for them.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
OF_OTHER_PACKAGES = {"extra-index-url", "find-links"}  # the lock is made from the index only


class InstallError(Exception):
    """The message says what failed, why, and what to do next."""


class NothingFits(InstallError):
    """No set of versions could be found, and so nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """The program that installs into .venv, and the environment that it runs in."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def offers(self, *arguments: str) -> bool:
        """Whether these could be installed; nothing is."""
        command = [*self.argv, "--dry-run", "--no-deps", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True).returncode == 0


def main(arguments: Sequence[str]) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/install", description="Make .venv and install Weir in it.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="an extra of pyproject.toml, such as test or dev")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="an environment of its own for what follows")
    parser.add_argument("--lock", action="store_true", help=f"write {LOCK} anew for pyproject.toml")
    parser.add_argument("--upgrade", action="store_true", help="with --lock: newer versions of everything")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[2]
    try:
        if options.lock:
            write_lock(root, upgrade=options.upgrade)
        elif options.into:
            install_beside(root, options.into.absolute(), options.extras)
        else:
            install(root, known_extras(root, options.extras))
    except InstallError as error:
        print(f"weir: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("weir: interrupted; the next call resumes", file=sys.stderr)
        return 130
    return 0


def install(root: Path, extras: frozenset[str]) -> None:
    """Bring .venv to what the files and extras ask for. Raises `InstallError`."""
    venv, files, wanted = root / ".venv", digest(root), {"", *extras}
    if wanted <= extras_of(venv, files):
        return
    with turn(venv):
        there = extras_of(venv, files)
        if wanted <= there:
            return
        started = time.monotonic()
        broken = (venv / UNFINISHED).exists()
        extras |= stamped(venv) - {""} if broken else set()
        make_environment(venv, anew=broken)
        installer = choose_installer(root, venv)
        (venv / UNFINISHED).touch()
        what = (
            f"with the extras {', '.join(sorted(extras))}" if extras else "without what only tests and developers need"
        )
        say(f"{installer.name} installs Weir into .venv, {what}")
        try:
            run(installer, install_arguments(root, extras, installer), root)
        except NothingFits:
            (venv / UNFINISHED).unlink()
            raise
        compile_bytecode(venv, () if extras else HEAVY)
        write_stamp(venv, files, there | {"", *extras})
        say(f"installed in {time.monotonic() - started:.0f} s")


def install_beside(root: Path, environment: Path, requirements: Sequence[str]) -> None:
    """Packages that cannot share Weir's environment, into one of their own."""
    make_environment(environment)
    run(choose_installer(root, environment), requirements, root)


def install_arguments(root: Path, extras: frozenset[str], installer: Installer) -> list[str]:
    """What is installed, and how it is pinned."""
    weir = f"{root}[{','.join(sorted(extras))}]" if extras else str(root)
    arguments = ["--constraint", str(root / LOCK), "--editable", weir]
    return arguments + torch_build(installer, root / ".venv", pinned(root, "torch"))


def compile_bytecode(venv: Path, packages: Sequence[str]) -> None:
    """Compile these packages, or all: processes of the judge write no bytecode, and would compile at every start."""
    (site,) = venv.glob("lib/python3*/site-packages")
    folders = [site / package for package in packages] or [site]
    command: list[str | Path] = [venv / "bin" / "python", "-m", "compileall", "-q", "-j", "0", *folders]
    subprocess.run(
        command, capture_output=True
    )  # its status reports files that are no modules, which some packages have


def write_lock(root: Path, *, upgrade: bool) -> None:
    """Write the lock for all extras and platforms; pins stay unless a bound or `upgrade` moves them.

    Raises InstallError where uv is missing or fails.
    """
    venv = root / ".venv"
    make_environment(venv)
    settings = {key: value for key, value in pip_settings(venv).items() if key not in OF_OTHER_PACKAGES}
    uv = find_uv(root, venv)
    if uv is None:
        raise InstallError(f"{LOCK} is made by uv, and the package index offers none; install uv and call again")
    argv = [uv, "pip", "compile", "pyproject.toml", "--output-file", LOCK, "--all-extras", "--universal", "--quiet"]
    argv += ["--python-version", "3.11", "--no-annotate", "--no-header", "--no-emit-index-url"]
    argv += ["--upgrade"] if upgrade else []
    status = subprocess.run(argv, cwd=root, env=uv_variables(settings) | os.environ).returncode
    if status != 0:
        raise InstallError(f"{LOCK} was not made: uv ended with status {status}, and says why above")


def known_extras(root: Path, extras: Sequence[str]) -> frozenset[str]:
    """The extras, where pyproject.toml has them all. Raises `InstallError` for another name."""
    known = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if unknown := [extra for extra in extras if extra not in known]:
        raise InstallError(f"there is no extra {', '.join(unknown)}; pyproject.toml has {', '.join(known)}")
    return frozenset(extras)


def digest(root: Path) -> str:
    """Of all that decides what gets installed, without the extras."""
    files = (root / "pyproject.toml", root / LOCK, Path(__file__))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def extras_of(venv: Path, files: str) -> set[str]:
    """The extras that .venv has for these files, and "" for Weir itself; none where it is unfinished or was moved."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if json.loads((venv / STAMP).read_text())["files"] == files and not is_moved(venv):
            return stamped(venv)
    return set()


def stamped(venv: Path) -> set[str]:
    """The extras that .venv had, of whichever files."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return set(json.loads((venv / STAMP).read_text())["extras"])
    return set()


def write_stamp(venv: Path, files: str, extras: set[str]) -> None:
    """Write the stamp file: what is installed."""
    aside = venv / f"{STAMP}.new"
    aside.write_text(json.dumps({"files": files, "extras": sorted(extras)}))
    aside.replace(venv / STAMP)
    (venv / UNFINISHED).unlink()


def is_moved(venv: Path) -> bool:
    """Whether the environment was made in another folder: its programs name the interpreter of that one."""
    program = venv / "bin" / "weir"
    with contextlib.suppress(OSError):
        interpreter = re.search(r"(/[^'\n]*)/python", program.read_text(errors="replace")[:1000])
        return interpreter is None or not Path(interpreter[1]).samefile(program.parent)
    return program.exists()


@contextlib.contextmanager
def turn(venv: Path) -> Iterator[None]:
    """One installation at a time."""
    with venv.with_name(".venv.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another installation into .venv")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_environment(venv: Path, *, anew: bool = False) -> None:
    """.venv with pip. Raises `InstallError` where this Python cannot make it, or where it is another Python's."""
    python = venv / "bin" / "python"
    if not anew and works(python, "-m", "pip", "--version") and not is_moved(venv):
        check_version(venv)
        return
    if venv.exists():
        say(f"{venv.name} is unfinished or was made in another folder, and is made anew")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", venv], capture_output=True, text=True)
    if made.returncode != 0 and not made_by_uv(venv):
        raise InstallError(
            f"{sys.executable} could not make {venv}: {(made.stdout + made.stderr).strip()}{disk_hint(venv.parent)}\n"
            "weir: on Debian and Ubuntu the package python3-venv is needed; PYTHON=… names another interpreter"
        )


def check_version(venv: Path) -> None:
    """Raise `InstallError` where PYTHON is set and names another version than the environment has."""
    asked = [str(venv / "bin" / "python"), "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    there = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    named = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if "PYTHON" in os.environ and there != named:
        raise InstallError(
            f"PYTHON names Python {named}, {venv.name} has {there}; "
            f"delete {venv.name} to change over, or leave PYTHON unset"
        )


def made_by_uv(venv: Path) -> bool:
    """A Python without ensurepip can still get an environment from the machine's uv."""
    flags = ("--quiet", "--seed", "--clear", "--python", sys.executable)
    return works(Path("uv"), "venv", *flags, str(venv))


def works(program: Path, *arguments: str) -> bool:
    """Whether a program starts and ends with status 0."""
    try:
        return subprocess.run([program, *arguments], capture_output=True).returncode == 0
    except OSError:
        return False


def choose_installer(root: Path, venv: Path) -> Installer:
    """uv, else pip."""
    python = str(venv / "bin" / "python")
    uv = find_uv(root, venv)
    if uv is not None:
        variables = uv_variables(pip_settings(venv)) | os.environ
        return Installer(name="uv", argv=(uv, "pip", "install", "--python", python), environment=variables)
    say("uv was not found and could not be installed: pip installs instead, which takes some minutes")
    pip = (python, "-m", "pip", "install", "--disable-pip-version-check")
    return Installer(name="pip", argv=pip, environment=os.environ)


def find_uv(root: Path, venv: Path) -> str | None:
    """The machine's uv, else one in an environment, put there from the package index; None where that has none."""
    own = venv / "bin" / "uv"
    for uv in (shutil.which("uv"), str(root / ".venv" / "bin" / "uv"), str(own)):
        if uv is not None and uv_version(uv) >= OLDEST_UV:
            return uv
    say("fetching uv, which installs everything else")
    pip = (
        str(venv / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
    )
    fetched = works(Path(pip[0]), *pip[1:], "--constraint", str(root / LOCK), "uv")
    return str(own) if fetched else None


def uv_version(uv: str) -> tuple[int, ...]:
    """As numbers; none where the program does not work."""
    try:
        said = subprocess.run([uv, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", said)[:2])


def pip_settings(venv: Path) -> dict[str, str]:
    """The settings that pip would use, from its files and variables, the nearest first. Raises InstallError."""
    listed = subprocess.run([venv / "bin" / "python", "-m", "pip", "config", "list"], capture_output=True, text=True)
    if listed.returncode != 0:
        raise InstallError(f"pip cannot read its own configuration: {listed.stderr.strip()}")
    return merged_settings(listed.stdout)


def merged_settings(listed: str) -> dict[str, str]:
    """The lines of `pip config list`: variables go before what is set for installing, and that before the rest."""
    values: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                values[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return values


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """pip's settings as uv's variables. pip takes the best version of all indexes, uv that of the first by itself."""
    variables = {SETTINGS[key]: " ".join(value.split()) for key, value in settings.items() if key in SETTINGS}
    if "UV_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = variables["UV_FIND_LINKS"].replace(" ", ",")
    if "UV_INDEX" in variables:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def pinned(root: Path, package: str) -> str:
    """The version that the lock has for a package. Raises InstallError where it has none."""
    found = re.search(rf"^{package}==([^\s;]+)", (root / LOCK).read_text(), re.MULTILINE)
    if found is None:
        raise InstallError(f"{LOCK} has no line {package}==…; write it anew with scripts/install --lock")
    return found[1]


def torch_build(installer: Installer, venv: Path, version: str) -> list[str]:
    """Arguments that name torch's build: for CPUs where there is no NVIDIA driver, else with CUDA.

    A build of this version that is there stays, and UV_TORCH_BACKEND decides where it is set.
    """
    there = [path.name for path in venv.glob(f"lib/python3*/site-packages/torch-{version}*.dist-info")]
    if there or "UV_TORCH_BACKEND" in os.environ:
        return []
    cpu_build = f"torch=={version}+cpu"
    if has_nvidia_driver():
        return [f"torch!={version}+cpu"] if installer.offers(f"torch=={version}", f"torch!={version}+cpu") else []
    if installer.offers(cpu_build):
        return [cpu_build]
    if installer.name == "uv" and installer.offers(cpu_build, "--torch-backend", "cpu"):
        return [cpu_build, "--torch-backend", "cpu"]
    say(
        f"no index that is reached from here offers {cpu_build}: torch's build with CUDA is taken, which may bring "
        "several GB (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL can name a place that has the CPU build)"
    )
    return []


def has_nvidia_driver() -> bool:
    """Whether this machine can run CUDA."""
    return Path("/proc/driver/nvidia/version").exists() or works(Path("nvidia-smi"), "-L")


def run(installer: Installer, arguments: Sequence[str], root: Path) -> None:
    """Install, with what the program shows of its progress. Raises `InstallError` where it fails."""
    started = time.monotonic()
    with subprocess.Popen([*installer.argv, *arguments], env=installer.environment) as process:
        while (status := ended(process)) is None:
            if not sys.stderr.isatty():
                say(f"still installing, {time.monotonic() - started:.0f} s so far")
    if status == 0:
        return
    if installer.name == "uv" and status == 1:
        raise NothingFits(
            f"uv found no versions that fit, and says why above. It seems that the index lacks one of {LOCK}: name "
            "another index with PIP_INDEX_URL or PIP_EXTRA_INDEX_URL, and call again"
        )
    raise InstallError(
        f"the installation failed: {installer.name} ended with status {status}, and says why above. Check that the "
        "package index is reachable (`pip config list` shows it) and that the disk has free space, then run it again: "
        f"nothing is fetched twice{disk_hint(root)}"
    )


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status; None after a while without one."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(BEAT_S)
    return None


def disk_hint(folder: Path) -> str:
    """What to say of a disk that is nearly full, for failures."""
    free = min(shutil.disk_usage(place).free for place in (Path.home(), folder))
    if free >= LOW_DISK_BYTES:
        return ""
    return f". The disk has {free / 1e9:.1f} GB left: Weir needs {LOW_DISK_BYTES / 1e9:.0f} with the cache"


def say(line: str) -> None:
    """One line for whoever waits."""
    print(f"weir: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
