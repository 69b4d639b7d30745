"""Landlock: a process permanently gives up files outside of given folders, TCP, and signals to other processes.

Uses as much as the running kernel supports (ABI 1: files; 4: TCP; 6: signals and abstract sockets). Not covered:
metadata through stat, UDP, and descriptors that are already open. Source: the kernel's userspace-api/landlock document.
"""

from __future__ import annotations

import ctypes
import os

from weir.kernel_eval.sandbox import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_ALL_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_OWN_THREADS = "/proc/self/task"
_TCP_BIND_AND_CONNECT, _TCP_CONNECT = 3, 2
_ABSTRACT_SOCKETS_AND_SIGNALS = 3


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """The version of Landlock that the running kernel supports; 0 without Landlock."""
    try:
        return syscalls.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except OSError:
        return 0


def restrict(
    readable: tuple[str, ...],
    writable: tuple[str, ...],
    connect_ports: tuple[int, ...] = (),
    *,
    names_threads: bool = False,
) -> None:
    """Allow reading below `readable`, everything below `writable`, TCP to `connect_ports`, and nothing else.

    `names_threads`: what this process has of its own threads in /proc may be written, too. Raises OSError.
    """
    version = abi()
    if version == 0:
        raise OSError("this kernel has no Landlock")
    files = _ALL_FILES[min(version, 5)]
    rules = _Ruleset(
        fs=files,
        net=_TCP_BIND_AND_CONNECT if version >= 4 else 0,
        scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscalls.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(ruleset, path, files & (_EXECUTE | _READ_FILE | _READ_DIR))
        for path in writable:
            _allow(ruleset, path, files)
        if names_threads:  # the descriptor stays open, for a rule holds only as long as the folder has its inode
            _allow_below(ruleset, os.open(_OWN_THREADS, os.O_PATH | os.O_CLOEXEC), files & (_WRITE_FILE | _TRUNCATE))
        for port in connect_ports if version >= 4 else ():
            _allow_port(ruleset, port)
        syscalls.forbid_new_privileges()
        syscalls.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - a Path costs more than the check, once for each worker
            rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _IOCTL_DEVICE
        _allow_below(ruleset, fd, rights)
    finally:
        os.close(fd)


def _allow_below(ruleset: int, fd: int, rights: int) -> None:
    rule = _PathBeneath(allowed=rights, parent_fd=fd)
    syscalls.syscall(
        _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
    )


def _allow_port(ruleset: int, port: int) -> None:
    rule = _Port(allowed=_TCP_CONNECT, port=port)
    syscalls.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_NET_PORT), ctypes.byref(rule), ctypes.c_uint32(0))
