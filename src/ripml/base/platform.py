"""What the operating system offers, behind functions that work where it does not: cores, memory, files, locks.

Linux is the system that is tested. Everything here has a branch for systems without the call (Windows, macOS), and
`tests/test_platform.py` runs those branches too, with the call taken away. A branch gives up a guarantee only where its
docstring says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = [
    "after_fork_in_child",
    "available_memory",
    "boot_id",
    "end_with_parent",
    "lock",
    "open_file",
    "open_folder",
    "read_at",
    "sync_file",
    "sync_folder",
    "trim_memory",
    "usable_cores",
]

fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None  # not on Windows

_LOCKED_BYTE = 1 << 30  # Windows locks bytes, also against readers: one that no file here has
_RETRY_SECONDS = 0.05
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_MEMINFO = Path("/proc/meminfo")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def usable_cores() -> int:
    """The cores that this process may use; all of the machine where the system does not tell.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes that this process can still allocate: the least that the machine and its control groups have free.

    Where the system does not tell what is free, all memory of the machine counts.

    >>> available_memory() > 0
    True
    """
    free = [_free_memory()]
    for limit, used in _GROUPS:
        with contextlib.suppress(OSError, ValueError):  # the file is missing, or says "max"
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()) + _cached(Path(used).parent))
    return max(0, min(free))


def _cached(group: Path) -> int:
    """Bytes of cached files that count as used by the group but are dropped when memory is needed."""
    stat = dict(line.split()[:2] for line in (group / "memory.stat").read_text().splitlines())
    return int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))


def _free_memory() -> int:
    with contextlib.suppress(OSError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(ctypes, "windll"):
        return _windows_memory(ctypes.windll.kernel32)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "available", "total_page", "available_page")),
        *((name, ctypes.c_uint64) for name in ("total_virtual", "available_virtual", "extended")),
    )
    available: int


def _windows_memory(kernel: Any) -> int:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError("GlobalMemoryStatusEx failed")
    return int(status.available)


def trim_memory() -> None:
    """Return freed memory to the system: glibc keeps freed blocks of up to 32 MB. Nothing with another C library."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when the process that forked it ends, however it ends; only on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(_PARENT_DEATH_SIGNAL, number)


def boot_id() -> str:
    """An id that changes when the machine starts: files written before a crash may have lost what was not on disk.

    It is empty where the system has none, so that no restart is noticed.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def after_fork_in_child(function: Callable[[], object]) -> None:
    """Call a function in every forked child; nothing to do on systems that cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def lock(fd: int, wait: bool = False) -> None:
    """Lock an open file for this process until it is closed; the system frees it when the process dies.

    Raises `BlockingIOError` if another process has it and `wait` is False, another `OSError` if it cannot be locked.
    """
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    position = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
    try:
        while not _windows_lock(fd):
            if not wait:
                raise BlockingIOError(errno.EACCES, os.strerror(errno.EACCES))
            time.sleep(_RETRY_SECONDS)
    finally:
        os.lseek(fd, position, os.SEEK_SET)


def _windows_lock(fd: int) -> bool:
    """Lock the byte at the position of a file; False if another process has it."""
    msvcrt: Any = importlib.import_module("msvcrt")
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EDEADLK):
            raise
        return False
    return True


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666, dir_fd: int | None = None) -> int:
    """As `os.open`, but never through a symbolic link (`OSError` with ELOOP) and never waiting for the end of a FIFO.

    Where the system has no flag for that, the name is looked up before: a link made in between would be followed.
    """
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), mode, dir_fd=dir_fd)


def open_folder(path: str | os.PathLike[str]) -> int | None:
    """A descriptor of a folder, for `dir_fd`, locks and `os.fsync`; None where folders cannot be opened (Windows).

    Raises `OSError` if it is not a folder.
    """
    if os.open in os.supports_dir_fd:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with os.scandir(path):
        return None


def sync_file(path: str | os.PathLike[str]) -> None:
    """Wait until the contents of a file are on the disk."""
    fd = open_file(path, os.O_RDWR)  # Windows syncs only what is open for writing
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Wait until the names in a folder are on the disk; nothing where folders cannot be opened."""
    fd = open_folder(path)
    if fd is not None:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_at(fd: int, buffer: memoryview, offset: int) -> int:
    """Read from a place of a file into a buffer and return the number of bytes.

    Where the system must move the position of the file to do so, a descriptor is not to be shared by threads.
    """
    if hasattr(os, "preadv"):
        return os.preadv(fd, [buffer], offset)
    os.lseek(fd, offset, os.SEEK_SET)
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
        return file.readinto(buffer) or 0
