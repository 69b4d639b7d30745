"""The seccomp filter of workers: system calls that they do not need fail with EPERM.

A worker cannot create processes (threads are allowed), start programs, open sockets, send signals or mount file
systems, so that nothing of it can outlive it, nor choose its processors and priorities. Needs libseccomp; without it
`build` returns None, and only the other means of `containment.py` apply.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Callable
from typing import Any

from weir.kernel_eval.sandbox import syscalls

# of any process of the same user: with these a candidate could slow down its neighbours, or be timed apart from them
_SCHEDULING = (
    *("sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam", "setpriority", "ioprio_set"),
)
_REFUSED = (
    *(
        "fork",
        "vfork",
        "execve",
        "execveat",
        "kill",
        "tkill",
        "pidfd_send_signal",
        "rt_sigqueueinfo",
        "rt_tgsigqueueinfo",
    ),
    *("socket", "socketpair", "connect", "bind", "listen", "accept", "accept4"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open", "pidfd_getfd", "kcmp", "userfaultfd"),
    *("mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr", "pivot_root", "chroot"),
    *("unshare", "setns", "bpf", "perf_event_open", "keyctl", "add_key", "request_key", "io_uring_setup"),
    *("shmget", "msgget", "semget", "mq_open", "memfd_create", "setsid", "setpgid", "prlimit64", "setrlimit"),
    *_SCHEDULING,
    *(
        "init_module",
        "finit_module",
        "kexec_load",
        "reboot",
        "swapon",
        "quotactl",
        "name_to_handle_at",
        "open_by_handle_at",
    ),
)

_FORKING = ("fork", "vfork", "execve", *_SCHEDULING)  # programs that are started set their own priority
_SOCKETS = ("socketpair", "connect", "bind", "listen", "accept", "accept4")
_AS_A_TREE = 2  # of SCMP_FLTATR_CTL_OPTIMIZE: the kernel tries a filter for each system call when it is loaded
_FOR_GPU = (*_SOCKETS, "socket", "memfd_create", "prlimit64")  # needed by a GPU's driver, and partly refused below


def build(allowed: tuple[str, ...] = (), *, may_fork: bool = False, on_gpu: bool = False) -> Callable[[], None] | None:
    """A function that loads the filter into a freshly forked worker; None without libseccomp.

    `may_fork` is for compilers, which start their own passes and run no code of a candidate, and for command-line
    agents; neither may make a user namespace. `on_gpu`: the process
    contains a GPU's driver, which creates Unix sockets and anonymous files, and reads its resource limits.
    """
    try:
        import pyseccomp as libseccomp
    except (ImportError, RuntimeError, OSError):
        return None
    rules = libseccomp.SyscallFilter(libseccomp.ALLOW)
    for name in set(_REFUSED) - set(allowed) - set(_FORKING if may_fork else ()) - set(_FOR_GPU if on_gpu else ()):
        rules.add_rule(libseccomp.ERRNO(errno.EPERM), name)
    if may_fork:
        new_users = libseccomp.Arg(0, libseccomp.MASKED_EQ, syscalls.CLONE_NEWUSER, syscalls.CLONE_NEWUSER)
        rules.add_rule(libseccomp.ERRNO(errno.EPERM), "clone", new_users)
    else:
        new_process = libseccomp.Arg(0, libseccomp.MASKED_EQ, syscalls.CLONE_THREAD, 0)
        rules.add_rule(libseccomp.ERRNO(errno.EPERM), "clone", new_process)
    if on_gpu:
        not_unix = libseccomp.Arg(0, libseccomp.NE, socket.AF_UNIX)
        sets_a_limit = libseccomp.Arg(2, libseccomp.NE, 0)
        rules.add_rule(libseccomp.ERRNO(errno.EPERM), "socket", not_unix)
        rules.add_rule(libseccomp.ERRNO(errno.EPERM), "prlimit64", sets_a_limit)
    rules.add_rule(
        libseccomp.ERRNO(errno.ENOSYS), "clone3"
    )  # libc then falls back to clone, whose flags a filter can check
    with contextlib.suppress(OSError):  # before libseccomp 2.5, filters are lists
        rules.set_attr(libseccomp.Attr.CTL_OPTIMIZE, _AS_A_TREE)
    return functools.partial(syscalls.filter_calls, _program(rules))


def _program(rules: Any) -> bytes:
    """The rules as the kernel takes them: a child would make them anew from libseccomp's own form."""
    with open(os.memfd_create("weir-filter", os.MFD_CLOEXEC), "r+b") as file:  # no folder may be writable here
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
