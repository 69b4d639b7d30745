"""System calls that Python 3.11 does not offer, through ctypes. Each raises OSError if it fails."""

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
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_INSTRUCTION_BYTES = 8
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_MADV_COLLAPSE = 25
_READ, _WRITE, _EXECUTE = 1, 2, 4  # rights of mmap and mprotect
_PRIVATE_MEMORY = 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
_TO_FIXED_ADDRESS = 3  # MREMAP_MAYMOVE | MREMAP_FIXED
_MAP_FAILED = ctypes.c_void_p(-1).value
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc_under_lock = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter's lock


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("num_instructions", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def check(result: int, call: str) -> int:
    """Returns the result. Raises OSError if it is -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """A system call that libc has no function for."""
    return check(_libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def fork() -> int:
    """fork(2) without Python's own work around it, for a process that never had a second thread.

    `os.fork` recreates locks that other threads might hold, seeds `random` and runs the hooks of every module, which is
    most of the cost of a fork, and writes 300 pages. A child that uses `random` has to seed it.
    """
    return check(_libc_under_lock.fork(), "fork")


def collapse(start: int, size: int) -> None:
    """Move memory of this process into huge pages; `start` and `size` are multiples of the huge page size, in bytes."""
    advice = ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(_MADV_COLLAPSE)
    check(_libc.madvise(*advice), "madvise(MADV_COLLAPSE)")


def copy_code(start: int, size: int) -> None:
    """Replace code of a file by a copy in a huge page, at the same address, in a process with one thread.

    `start` and `size` are those of a huge page, in bytes. The last call exchanges the mapping as a whole, so that the
    code may be that of this function.
    """
    mapped = _libc.mmap(None, ctypes.c_size_t(2 * size), _READ | _WRITE, _PRIVATE_MEMORY, -1, ctypes.c_long(0))
    check(-1 if mapped == _MAP_FAILED else 0, "mmap")
    copy = -(-mapped // size) * size
    _unmap(mapped, copy - mapped)
    _unmap(copy + size, mapped + size - copy)
    try:
        ctypes.memmove(copy, start, size)
        collapse(copy, size)
        check(_libc.mprotect(ctypes.c_void_p(copy), ctypes.c_size_t(size), _READ | _EXECUTE), "mprotect")
        both = ctypes.c_size_t(size), ctypes.c_size_t(size)
        moved = _libc.mremap(ctypes.c_void_p(copy), *both, _TO_FIXED_ADDRESS, ctypes.c_void_p(start))
        check(-1 if moved == _MAP_FAILED else 0, "mremap")
    except OSError:
        _unmap(copy, size)
        raise


def _unmap(start: int, size: int) -> None:
    if size:
        check(_libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size)), "munmap")


def unshare(flags: int) -> None:
    """unshare(2)."""
    check(_libc.unshare(flags), "unshare")


def leave_network() -> None:
    """Enter new network and IPC namespaces; without root privileges, in a new user namespace."""
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
    """Change from root to an unnamed user, permanently. This resets `die_with_parent`, which must be called again."""
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
    """Mount a /proc that shows the processes of this PID namespace."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount proc on /proc")


def hide(path: str) -> None:
    """Mount an empty folder without permissions over a folder."""
    _mount_tmpfs(path, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_RDONLY, "size=4096,mode=000")


def _mount_tmpfs(path: str, flags: int, options: str) -> None:
    check(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options.encode()), f"mount tmpfs on {path}")


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends."""
    check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_inspection() -> None:
    """Forbid processes of the same user to read or trace this one, and core dumps."""
    check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def forbid_new_privileges() -> None:
    """Forbid programs started later to gain privileges (no_new_privs)."""
    check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def filter_calls(program: bytes) -> None:
    """Load a seccomp filter, a classic BPF program, for good; Linux, Documentation/userspace-api/seccomp_filter.rst."""
    forbid_new_privileges()
    loaded = _Program(len(program) // _INSTRUCTION_BYTES, program)
    check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0), "prctl(PR_SET_SECCOMP)")


def keep_capabilities(kept: int) -> None:
    """Permanently drop all capabilities but the given mask of the first 32, which programs started later keep too."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(kept, kept, kept)
    syscall(_SYS_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(effective_permitted_inheritable))
    for number in range(32):
        if kept & 1 << number:
            check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0), "prctl(PR_CAP_AMBIENT)")
