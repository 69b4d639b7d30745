"""The system calls that Python 3.11 does not offer, through ctypes. Each raises OSError; nothing else happens here."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_THREAD = 0x00010000
CAP_DAC_READ_SEARCH = 1 << 2  # to read any file

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 8, 36, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_MADV_COLLAPSE = 25
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc_under_lock = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter's lock


def check(result: int, what: str) -> int:
    """Raise OSError for a result of -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """A system call that libc has no function for."""
    return check(_libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def fork() -> int:
    """fork(2) and nothing of what Python does around it, for a process that has one thread, and had no other.

    `os.fork` makes locks anew that other threads might hold, seeds `random` and runs the hooks of every module: most
    of what a fork costs, and 300 pages written. Whoever draws from `random` in a child has to seed it.
    """
    return check(_libc_under_lock.fork(), "fork")


def collapse(start: int, size: int) -> None:
    """Put memory of this process into huge pages, now; of addresses that are multiples of theirs."""
    advice = ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(_MADV_COLLAPSE)
    check(_libc.madvise(*advice), "madvise(MADV_COLLAPSE)")


def unshare(flags: int) -> None:
    """unshare(2)."""
    check(_libc.unshare(flags), "unshare")


def leave_network() -> None:
    """A network namespace and an IPC namespace of this process's own, in a user namespace where that takes one."""
    kinds = CLONE_NEWNET | CLONE_NEWIPC
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        unshare(kinds)
        return
    unshare(CLONE_NEWUSER | kinds)
    for name, text in (("uid_map", f"{uid} {uid} 1"), ("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def become_user(uid: int, capabilities: int = 0) -> None:
    """From root to a user without a name, for good. Whoever asked to die with its parent has to ask again."""
    check(_libc.prctl(_PR_SET_KEEPCAPS, int(capabilities != 0), 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    keep_capabilities(capabilities)


def setns(fd: int, kind: int) -> None:
    """setns(2)."""
    check(_libc.setns(fd, kind), "setns")


def mount_tmpfs(path: str, size_bytes: int) -> None:
    """Put a fresh, private tmpfs over a folder."""
    _mount_tmpfs(path, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, f"size={size_bytes},mode=700")


def mount_proc() -> None:
    """The processes of this PID namespace, in place of those that /proc showed."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount proc on /proc")


def hide(path: str) -> None:
    """Put an empty folder that nobody may enter over a folder."""
    _mount_tmpfs(path, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_RDONLY, "size=4096,mode=000")


def _mount_tmpfs(path: str, flags: int, options: str) -> None:
    check(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options.encode()), f"mount tmpfs on {path}")


def die_with_parent() -> None:
    """SIGKILL to this process when the thread that started it ends."""
    check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_inspection() -> None:
    """Nobody of the same user may read or trace this process, and it leaves no core dump."""
    check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def become_subreaper() -> None:
    """Orphaned descendants become children of this process."""
    check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def forbid_new_privileges() -> None:
    """No program that is started can give more rights than there are now."""
    check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def keep_capabilities(kept: int) -> None:
    """Give up every capability but these, for good; a program that is started has them too. Of the first 32 only."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(kept, kept, kept)
    syscall(_SYS_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(effective_permitted_inheritable))
    for number in range(32):
        if kept & 1 << number:
            check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0), "prctl(PR_CAP_AMBIENT)")
