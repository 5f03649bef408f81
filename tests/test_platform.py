"""Every call that not all systems have: what it gives here, and what is done where it is missing."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ripml.base import model_folder, platform
from ripml.base.errors import ModelFolderError, StoreLockedError
from ripml.base.workspace import DiskWorkspace, read_rows
from ripml.server import keys
from ripml.store.database import WriterLock


class Locking:
    """The locks of Windows' msvcrt: one for each file, taken by one descriptor."""

    LK_NBLCK = 2

    def __init__(self, refusals: int = 0) -> None:
        self.positions: list[int] = []
        self.owners: dict[int, int] = {}
        self.refusals = refusals

    def locking(self, fd: int, mode: int, n: int) -> None:
        self.positions.append(os.lseek(fd, 0, os.SEEK_CUR))
        taken = self.owners.setdefault(os.fstat(fd).st_ino, fd) != fd
        if taken or self.refusals:
            self.refusals = max(0, self.refusals - 1)
            raise OSError(errno.EACCES, "Permission denied")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Locking:
    """A system without flock, descriptors of folders, O_NOFOLLOW, fork, preadv and /proc."""
    locking = Locking()
    monkeypatch.setattr(platform, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", locking)
    monkeypatch.setattr(os, "supports_dir_fd", set())
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "preadv", "register_at_fork"):
        monkeypatch.delattr(os, name)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(platform, "_MEMINFO", Path("nowhere"))
    monkeypatch.setattr(platform, "_BOOT_ID", Path("nowhere"))
    monkeypatch.setattr(platform, "_GROUPS", ())
    return locking


def test_cores_are_those_of_the_process_or_else_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7}, raising=False)
    assert platform.usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert platform.usable_cores() == 4
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert platform.usable_cores() == 1


def test_memory_is_what_is_free_by_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_GROUPS", ())
    monkeypatch.setattr(platform, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 7 kB\n")
    assert platform.available_memory() == 7 * 1024


def test_memory_is_bounded_by_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"max": "1000", "current": "600", "stat": "anon 500\ninactive_file 50\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(platform, "_GROUPS", ((str(tmp_path / "memory.max"), str(tmp_path / "memory.current")),))
    assert platform.available_memory() == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert platform.available_memory() > 450


def test_without_proc_memory_is_all_that_the_machine_has(monkeypatch: pytest.MonkeyPatch, windows: Locking) -> None:
    assert platform.available_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_on_windows_memory_is_what_its_kernel_says(monkeypatch: pytest.MonkeyPatch, windows: Locking) -> None:
    def status(place: Any) -> int:
        found = ctypes.cast(place, ctypes.POINTER(platform._MemoryStatus)).contents
        assert found.length == 64  # the size of MEMORYSTATUSEX, which Windows checks
        found.available = 12345
        return 1

    kernel = SimpleNamespace(GlobalMemoryStatusEx=status)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    assert platform.available_memory() == 12345
    kernel.GlobalMemoryStatusEx = lambda place: 0
    with pytest.raises(OSError, match="GlobalMemoryStatusEx failed"):
        platform.available_memory()


def test_memory_can_be_trimmed_with_any_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskWorkspace.in_folder(tmp_path, 1 << 20).trim_memory()

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    DiskWorkspace.in_folder(tmp_path, 1 << 20).trim_memory()


def test_the_boot_id_is_empty_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_BOOT_ID", tmp_path / "boot_id")
    assert platform.boot_id() == ""
    (tmp_path / "boot_id").write_text("0b4632c\n")
    assert platform.boot_id() == "0b4632c"


def held_elsewhere(path: Path) -> bool:
    """Whether the lock of a file is refused to another process."""
    code = (
        "import os, sys; from ripml.base import platform\n"
        "try:\n    platform.lock(os.open(sys.argv[1], os.O_RDWR))\n"
        "except BlockingIOError:\n    print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout == "refused\n"


def test_a_locked_file_is_refused_to_other_processes_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    platform.lock(fd)
    assert held_elsewhere(path)
    os.close(fd)
    assert not held_elsewhere(path)


def test_windows_locks_a_byte_that_no_reader_needs(tmp_path: Path, windows: Locking) -> None:
    first = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.write(first, b"42\n")
    platform.lock(first)
    assert windows.positions == [1 << 30]
    assert os.lseek(first, 0, os.SEEK_CUR) == 3  # the position is as before
    second = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError, match="Permission denied"):
        platform.lock(second)
    os.close(first)
    os.close(second)


def test_windows_waits_for_a_lock_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: Locking
) -> None:
    windows.refusals = 3
    monkeypatch.setattr(platform, "_RETRY_SECONDS", 0.0)
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    platform.lock(fd, wait=True)
    assert len(windows.positions) == 4

    def broken(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(windows, "locking", broken)
    with pytest.raises(OSError, match="Input/output error"):
        platform.lock(fd, wait=True)
    os.close(fd)


@pytest.mark.parametrize("flag", [True, False])
def test_a_link_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: bool) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to("file")
    if not flag:
        monkeypatch.delattr(os, "O_NOFOLLOW")
    os.close(platform.open_file(tmp_path / "file", os.O_RDONLY))
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        platform.open_file(tmp_path / "link", os.O_RDONLY)


def test_a_folder_without_a_descriptor_is_still_known_to_be_one(tmp_path: Path, windows: Locking) -> None:
    (tmp_path / "file").touch()
    assert platform.open_folder(tmp_path) is None
    platform.sync_folder(tmp_path)
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        platform.open_folder(tmp_path / "file")


def test_a_forked_child_calls_what_was_registered_where_there_is_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []

    def register(*, after_in_child: object) -> None:
        registered.append(after_in_child)

    monkeypatch.setattr(os, "register_at_fork", register, raising=False)
    platform.after_fork_in_child(registered.clear)
    assert registered == [registered.clear]
    monkeypatch.delattr(os, "register_at_fork")
    platform.after_fork_in_child(registered.clear)


@pytest.mark.parametrize("preadv", [True, False])
def test_mapped_rows_are_read_with_and_without_preadv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preadv: bool
) -> None:
    rows = np.arange(20.0).reshape(5, 4)
    rows.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", np.float64, "r", shape=(5, 4))
    if not preadv:
        monkeypatch.delattr(os, "preadv")
    assert np.array_equal(read_rows(mapped, np.array([3, 0])), rows[[3, 0]])


def test_models_keys_and_locks_work_on_a_system_without_these_calls(tmp_path: Path, windows: Locking) -> None:
    folder = tmp_path / "model"
    for value in (1.0, 2.0):
        model_folder.save(folder, "example", {"value": value}, {"Psi": np.full((3, 2), value)})
        loaded = model_folder.load(folder)
        assert loaded.parameters == {"value": value}
        assert np.array_equal(loaded.arrays["Psi"], np.full((3, 2), value))
    assert len(list(folder.iterdir())) == 2  # the old array is removed
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    (folder / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(ModelFolderError, match="this is a symbolic link, which is not followed"):
        model_folder.load(folder)
    key = keys.add_key(tmp_path / "keys.jsonl", "ana")
    assert keys.KeyRing(tmp_path / "keys.jsonl").find(key) is not None
    lock = WriterLock(tmp_path)
    with pytest.raises(StoreLockedError, match=rf"is open for writing by process {os.getpid()}; it can be read"):
        WriterLock(tmp_path)
    lock.release()
