"""How a worker is contained, by level: which command a zygote is started by, and what a fresh worker does to itself.

bubblewrap  the zygote has its own network, mounts, IPC and user namespace and sees only Python, its packages and the
            system's libraries, read-only. Each worker gets, on top of that, its own PID namespace (when it ends, all
            that it started ends), no /proc (on a GPU: its own, and its own network), no /dev/shm and a fresh tmpfs as
            /tmp (as /scratch where the installation itself lies below /tmp); it holds no capability.
landlock    the kernel refuses files outside the same folders and one temporary folder of the worker's own, TCP, and
            signals to others; network and IPC are namespaces of the zygote's own where the machine allows it
            (`own_network` in /health). Orphans become children of the zygote, which ends them.
rlimits     limits on memory, processor time and sizes of files; no core dumps; not inspectable by its own user.
At every level the seccomp filter of `seccomp.py` applies where libseccomp is installed, and a worker holds no
capability. Where the server is root, below `bubblewrap`, each worker is a user of its own without a name, which owns
its temporary folder and nothing else; where such a user could not read Python's folders it keeps the one capability to
read files. What it leaves in folders that everybody may write to is found at its end, at `rlimits`, and removed.

Not contained: at `rlimits`, reading files (all of them, where the capability is kept), writing them as the worker's
user where that is not one of its own, and without seccomp the network. At `landlock`, filling the disk under the
temporary folder (each file is bounded, their number is not), and metadata of files. At all levels: side channels, bugs
of the operating system's kernel, memory bandwidth, and what other evaluations suffer from those. Where it has no user
of its own the worker runs as the server's user (inside a user namespace at `bubblewrap`), so do not run the server as
a user whose readable files under the bound folders are secret.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from weir.kernel_eval.errors import SandboxUnavailable
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.sandbox import landlock, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain import native_compilers

_SYSTEM_FOLDERS = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
    "/sys/kernel/mm/transparent_hugepage",  # where a C library learns whether it may have huge pages
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_TMP_BYTES = 32 << 20  # of what probes a level
_OPEN_FILES, _OPEN_FILES_ON_GPU = 64, 1024
_FILE_BYTES = 64 << 20  # of machine code, and of what a GPU's driver makes
_DRIVER_BYTES = 8 << 30  # of the host's memory, that a GPU's driver and runtime write to
_GPU_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm*", "nvidia-modeset")
_SHARED_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")
_FIRST_UID, _NUM_UIDS = 200_000, 60_000
_BUBBLEWRAP = (
    *("--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"),
    *("--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)


@functools.cache
def readable_folders() -> tuple[str, ...]:
    """What an interpreter with torch and Triton needs to read, and this package. Asked once: forks know it, too."""
    own = Path(__file__).resolve().parents[1]  # kernel_eval/
    interpreter = Path(sys.executable).resolve().parent
    packages = [*site.getsitepackages(), *(path for path in sys.path if path.endswith("-packages"))]  # .pth files too
    folders = [*_SYSTEM_FOLDERS, sys.base_prefix, sys.prefix, *packages, str(interpreter), str(own)]
    folders += native_compilers.homes()
    return tuple(dict.fromkeys(folder for folder in folders if Path(folder).exists()))


@functools.cache
def worker_tmp() -> str:
    """Where a worker's own tmpfs lies: /tmp, unless what it has to read lies below that and would be hidden."""
    return "/scratch" if any(Path(folder).is_relative_to("/tmp") for folder in readable_folders()) else "/tmp"


def environment() -> dict[str, str]:
    """All that our processes see of the server's environment: nothing but where libraries and toolkits lie."""
    inherited = {
        name: os.environ[name]
        for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH")
        if name in os.environ
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "TRITON_INTERPRET": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **threads,
        **inherited,
    }


def gpu_devices() -> tuple[str, ...]:
    """The files through which a GPU's driver is spoken to; none where there is no GPU."""
    return tuple(sorted(str(path) for pattern in _GPU_DEVICES for path in Path("/dev").glob(pattern)))


def command(level: SandboxLevel, arguments: tuple[str, ...], *, on_gpu: bool = False) -> list[str]:
    """The command line that starts Python with `arguments` so that workers of `level` can be forked from it."""
    python = [sys.executable, "-B", "-P", *arguments]
    if level is not SandboxLevel.BUBBLEWRAP:
        return python
    binds = [word for folder in readable_folders() for word in ("--ro-bind", folder, folder)]
    if on_gpu:
        binds += [word for device in gpu_devices() for word in ("--dev-bind", device, device)]
        binds += ["--ro-bind", "/sys", "/sys"]  # how memory and processors are laid out, which the driver asks
    tmp = worker_tmp()
    own_tmp = ["--remount-ro", "/tmp", "--tmpfs", tmp] if tmp != "/tmp" else []
    return ["bwrap", *_BUBBLEWRAP, *binds, *own_tmp, "--chdir", tmp, "--remount-ro", "/", "--", *python]


def choose_level(wanted: SandboxLevel | None, minimum: SandboxLevel) -> SandboxLevel:
    """The level to run at: the wanted or else the strongest that works. Raises `SandboxUnavailable`."""
    candidates = [wanted] if wanted else sorted(SandboxLevel, key=lambda level: -level.rank)
    working = next((level for level in candidates if works(level)), None)
    if working is None:
        raise SandboxUnavailable(f"the sandbox level {wanted} does not work on this machine; unset kernel_eval.sandbox")
    if working.rank < minimum.rank:
        raise SandboxUnavailable(
            f"kernel_eval.min_sandbox is {minimum}, this server would run at {working}; "
            "install bubblewrap (and allow user namespaces), or lower min_sandbox"
        )
    return working


@functools.cache
def works(level: SandboxLevel) -> bool:
    """Try the level once, as it is used."""
    if level is SandboxLevel.RLIMITS:
        return True
    if level is SandboxLevel.LANDLOCK:
        return landlock.abi() >= 1
    if shutil.which("bwrap") is None:
        return False
    probe = ("-c", "from weir.kernel_eval.sandbox import containment; containment.probe_namespaces()")
    tried = subprocess.run(
        command(level, probe),
        env={**environment(), "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        capture_output=True,
    )
    return tried.returncode == 0


def probe_namespaces() -> None:
    """Inside bubblewrap: do once what is done for each worker. Raises OSError."""
    with pid_namespace_for_children(SandboxLevel.BUBBLEWRAP):
        pid = os.fork()
        if pid == 0:
            try:
                _enter_namespaces(_TMP_BYTES)
                os._exit(0)
            finally:
                os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("a worker cannot make its own namespaces")


@contextlib.contextmanager
def pid_namespace_for_children(level: SandboxLevel) -> Iterator[None]:
    """At `bubblewrap`, a child that is forked here is the first process of a PID namespace of its own."""
    if level is not SandboxLevel.BUBBLEWRAP:
        yield
        return
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    parent = os.getpid()
    syscalls.unshare(syscalls.CLONE_NEWPID)
    try:
        yield
    finally:
        if os.getpid() == parent:
            syscalls.setns(own, syscalls.CLONE_NEWPID)
        os.close(own)


def isolate_zygote(level: SandboxLevel) -> bool:
    """What a zygote does to itself before it imports anything; whether its workers have no network but their own."""
    if level is SandboxLevel.LANDLOCK:
        try:
            syscalls.leave_network()
        except OSError:
            return False  # the machine does not allow it; /health says so
    return level is not SandboxLevel.RLIMITS


def own_uid(pid: int) -> int:
    """The user that a worker becomes where the server is root; by its pid outside of any namespace."""
    return _FIRST_UID + pid % _NUM_UIDS


def become_own_user(tmp: str) -> int:
    """Root becomes a user that nobody else is, who owns `tmp`; returns the capabilities that it keeps.

    That is none, or the one to read files, where Python lies in a folder that such a user could not enter.
    """
    if os.geteuid() != 0:
        return 0
    needed = {path for folder in (*readable_folders(), tmp) for path in Path(folder).resolve().parents}
    kept = 0 if all(path.stat().st_mode & 0o001 for path in needed) else syscalls.CAP_DAC_READ_SEARCH
    uid = own_uid(os.getpid())
    os.chown(tmp, uid, uid)
    syscalls.become_user(uid, kept)
    syscalls.die_with_parent()
    return kept


def remove_files_of(pid: int) -> int:
    """What a worker that has ended left where everybody may write; how many. Only root can tell whose a file is."""
    if os.geteuid() != 0:
        return 0
    left = [entry for place in _SHARED_FOLDERS if Path(place).is_dir() for entry in os.scandir(place)]
    theirs = [entry for entry in left if _owner(entry) == own_uid(pid)]
    for entry in theirs:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
    return len(theirs)


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None


def contain(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    """What a fresh worker does to itself before it reads anything of a candidate. Raises OSError: then it ends."""
    _limit_memory(limits.memory_bytes, on_gpu=limits.gpu is not None)
    _limit(resource.RLIMIT_CPU, limits.cpu_s)
    _limit(resource.RLIMIT_FSIZE, limits.output_bytes if limits.gpu is None else max(limits.output_bytes, _FILE_BYTES))
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES if limits.gpu is None else _OPEN_FILES_ON_GPU)
    _enclose(level, limits, tmp, seccomp_load)


def contain_judge(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    """The same for a judge, which holds more files and memory and lives longer. Raises OSError: then it ends."""
    _limit_memory(limits.task_memory_bytes, on_gpu=limits.gpu is not None)
    _enclose(level, limits, tmp, seccomp_load)


def _enclose(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    kept = 0 if level is SandboxLevel.BUBBLEWRAP else become_own_user(tmp)
    syscalls.forbid_inspection()
    if level is SandboxLevel.BUBBLEWRAP:
        _enter_namespaces(limits.tmp_bytes, on_gpu=limits.gpu is not None)
    elif level is SandboxLevel.LANDLOCK:
        devices = () if limits.gpu is None else gpu_devices()
        folders = () if limits.gpu is None else ("/proc", "/sys")
        landlock.restrict((*readable_folders(), *folders), (tmp, *_DEVICES, *devices))
    _limit(resource.RLIMIT_CORE, 0)
    syscalls.forbid_new_privileges()
    syscalls.keep_capabilities(kept)
    if seccomp_load is not None:
        seccomp_load()


def _limit_memory(more_bytes: int, *, on_gpu: bool) -> None:
    base_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if on_gpu:  # a GPU's driver reserves addresses beyond any limit; what is written to counts as data
        _limit(resource.RLIMIT_DATA, base_bytes + more_bytes + _DRIVER_BYTES)
    else:
        _limit(resource.RLIMIT_AS, base_bytes + more_bytes)


def _enter_namespaces(tmp_bytes: int, *, on_gpu: bool = False) -> None:
    """A GPU's driver reads /proc, and speaks to itself through sockets: on one, both are the worker's own."""
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | (syscalls.CLONE_NEWNET if on_gpu else 0))
    tmp = worker_tmp()
    syscalls.mount_tmpfs(tmp, tmp_bytes)
    syscalls.hide("/dev/shm")
    if on_gpu:
        syscalls.mount_proc()
    else:
        syscalls.hide("/proc")
    os.chdir(tmp)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bounded, bounded))
