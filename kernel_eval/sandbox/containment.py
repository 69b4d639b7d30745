"""Containment of workers, by level: the command that starts a zygote, and the steps of a freshly forked worker.

bubblewrap  the zygote has its own network, mount, IPC and user namespace, and sees only Python, its packages and the
            system's libraries, read-only. In addition, each worker gets its own PID namespace (at its end, all its
            descendants end), no /proc (on a GPU: its own, and its own network), no /dev/shm, and a fresh tmpfs as /tmp
            (as /scratch if the installation itself lies below /tmp). It holds no capability.
landlock    the kernel refuses TCP, signals to other processes, and files outside of the same folders and of one
            temporary folder per worker. The zygote has its own network and IPC namespace if the machine allows it
            (`own_network` in /health). Orphans become children of the zygote, which ends them.
rlimits     limits on memory, processor time and file sizes; no core dumps; processes of its own user cannot inspect it.
At every level, the filter of `seccomp.py` applies if libseccomp is installed, and a worker holds no capability. Below
`bubblewrap`, if the server is root, each worker becomes an unnamed user of its own, which owns its temporary folder and
nothing else; it keeps the capability to read files if such a user could not read Python's folders. At `rlimits`, the
files that it leaves in world-writable folders are removed at its end.

Not contained: at `rlimits`, reading files (all files, if the capability is kept), writing files as the server's user if
the worker has no user of its own, and the network if seccomp is missing. At `landlock`, filling the disk of the
temporary folder (the size of a file is limited, their number is not), and file metadata. At all levels: side channels,
bugs in the operating system's kernel, memory bandwidth, and their effect on other evaluations. Without a user of its
own, a worker runs as the server's user (inside a user namespace at `bubblewrap`): do not run the server as a user with
secret readable files in the bound folders.
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
    "/sys/kernel/mm/transparent_hugepage",  # read by the C library to decide on huge pages
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_TMP_BYTES = 32 << 20  # of the process that probes a level
_OPEN_FILES, _OPEN_FILES_ON_GPU = 64, 1024
_FILE_BYTES = 64 << 20  # file size limit on a GPU: machine code, and files of the driver
_DRIVER_BYTES = 8 << 30  # host memory that a GPU's driver and runtime write to
_GPU_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm*", "nvidia-modeset")
_SHARED_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")
_FIRST_UID, _NUM_UIDS = 200_000, 60_000
_BUBBLEWRAP = (
    *("--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"),
    *("--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)


@functools.cache
def readable_folders() -> tuple[str, ...]:
    """The folders that Python, torch, Triton and this package need to read. Cached, also for forked children."""
    own = Path(__file__).resolve().parents[1]  # kernel_eval/
    interpreter = Path(sys.executable).resolve().parent
    packages = [*site.getsitepackages(), *(path for path in sys.path if path.endswith("-packages"))]  # .pth files too
    folders = [*_SYSTEM_FOLDERS, sys.base_prefix, sys.prefix, *packages, str(interpreter), str(own)]
    folders += native_compilers.homes()
    return tuple(dict.fromkeys(folder for folder in folders if Path(folder).exists()))


@functools.cache
def worker_tmp() -> str:
    """The mount point of a worker's tmpfs: /tmp, unless that would hide folders which it has to read."""
    return "/scratch" if any(Path(folder).is_relative_to("/tmp") for folder in readable_folders()) else "/tmp"


def environment() -> dict[str, str]:
    """The environment of zygotes: of the server's, only the locations of libraries and toolkits."""
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
        "PYTHONDONTWRITEBYTECODE": "1",
        **threads,
        **inherited,
    }


def gpu_devices() -> tuple[str, ...]:
    """The device files of GPUs; none without a GPU."""
    return tuple(sorted(str(path) for pattern in _GPU_DEVICES for path in Path("/dev").glob(pattern)))


def command(level: SandboxLevel, arguments: tuple[str, ...], *, on_gpu: bool = False) -> list[str]:
    """The command line of a Python process from which workers of `level` can be forked."""
    python = [sys.executable, "-B", "-P", *arguments]
    if level is not SandboxLevel.BUBBLEWRAP:
        return python
    binds = [word for folder in readable_folders() for word in ("--ro-bind", folder, folder)]
    if on_gpu:
        binds += [word for device in gpu_devices() for word in ("--dev-bind", device, device)]
        binds += ["--ro-bind", "/sys", "/sys"]  # the driver reads the layout of memory and processors
    tmp = worker_tmp()
    own_tmp = ["--remount-ro", "/tmp", "--tmpfs", tmp] if tmp != "/tmp" else []
    return ["bwrap", *_BUBBLEWRAP, *binds, *own_tmp, "--chdir", tmp, "--remount-ro", "/", "--", *python]


def choose_level(wanted: SandboxLevel | None, minimum: SandboxLevel) -> SandboxLevel:
    """The level to run at: the wanted one, or the strongest that works. Raises `SandboxUnavailable`."""
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
    """Whether a level works on this machine. Tried once, in the way it is used."""
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
    """Inside bubblewrap: create a worker's namespaces once. Raises OSError if that fails."""
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
    """At `bubblewrap`, make a child that is forked in this block the first process of a new PID namespace."""
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
    """Isolate a zygote, before it imports anything. Returns whether its workers have a network of their own."""
    if level is SandboxLevel.LANDLOCK:
        try:
            syscalls.leave_network()
        except OSError:
            return False  # the machine does not allow it; /health says so
    return level is not SandboxLevel.RLIMITS


def own_uid(pid: int) -> int:
    """The user id of a worker if the server is root, by the worker's pid in the server's namespace."""
    return _FIRST_UID + pid % _NUM_UIDS


def become_own_user(tmp: str) -> int:
    """If root, become an unnamed user that owns `tmp`. Returns the mask of capabilities that it keeps.

    It keeps none, or the one to read files if such a user could not enter Python's folders.
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
    """Remove the files that an ended worker left in world-writable folders. Returns their number; 0 unless root."""
    if os.geteuid() != 0:
        return 0
    entries = [entry for place in _SHARED_FOLDERS if Path(place).is_dir() for entry in os.scandir(place)]
    leftovers = [entry for entry in entries if _owner(entry) == own_uid(pid)]
    for entry in leftovers:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
    return len(leftovers)


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None


def contain(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    """Contain a fresh worker, before it reads anything of a candidate. Raises OSError, which ends the worker."""
    _limit_memory(limits.memory_bytes, on_gpu=limits.gpu is not None)
    _limit(resource.RLIMIT_CPU, limits.cpu_s)
    _limit(resource.RLIMIT_FSIZE, limits.output_bytes if limits.gpu is None else max(limits.output_bytes, _FILE_BYTES))
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES if limits.gpu is None else _OPEN_FILES_ON_GPU)
    _enclose(level, limits, tmp, seccomp_load)


def contain_judge(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    """Contain a judge, which may use more files, memory and time. Raises OSError, which ends the judge."""
    _limit_memory(limits.task_memory_bytes, on_gpu=limits.gpu is not None)
    _enclose(level, limits, tmp, seccomp_load)


def _enclose(level: SandboxLevel, limits: Limits, tmp: str, seccomp_load: Callable[[], None] | None) -> None:
    kept = 0 if level is SandboxLevel.BUBBLEWRAP else become_own_user(tmp)
    syscalls.forbid_inspection()
    if level is SandboxLevel.BUBBLEWRAP:
        _enter_namespaces(limits.tmp_bytes, on_gpu=limits.gpu is not None)
    elif level is SandboxLevel.LANDLOCK:
        on_gpu = limits.gpu is not None
        folders, devices = (("/proc", "/sys"), gpu_devices()) if on_gpu else ((), ())
        readable, writable = (*readable_folders(), *folders), (tmp, *_DEVICES, *devices)
        landlock.restrict(readable, writable, names_threads=on_gpu)  # CUDA ends if it cannot name its threads
    _limit(resource.RLIMIT_CORE, 0)
    syscalls.forbid_new_privileges()
    syscalls.keep_capabilities(kept)
    if seccomp_load is not None:
        seccomp_load()


def _limit_memory(more_bytes: int, *, on_gpu: bool) -> None:
    base_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if on_gpu:  # a GPU's driver reserves addresses beyond any limit; only written memory counts as data
        _limit(resource.RLIMIT_DATA, base_bytes + more_bytes + _DRIVER_BYTES)
    else:
        _limit(resource.RLIMIT_AS, base_bytes + more_bytes)


def _enter_namespaces(tmp_bytes: int, *, on_gpu: bool = False) -> None:
    """Enter a worker's namespaces. On a GPU it gets its own /proc and network, which the driver needs."""
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
