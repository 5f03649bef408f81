"""The model folder: what is saved comes back, a crash leaves a whole model, and no folder can do harm."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.metadata
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import BAD_HEADERS, forged, mutate, npy, reseal, reseal_array

from ripml.base import model_folder
from ripml.base.errors import ModelFolderError, ParameterError

Arrays = dict[str, Any]
DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
]
OLD: tuple[str, dict[str, Any], Arrays] = (
    "old",
    {"ridge": 0.5, "labels": ["a", "é", "标签"]},
    {"Psi": np.arange(12.0).reshape(3, 4), "same": np.arange(3)},
)
NEW: tuple[str, dict[str, Any], Arrays] = (
    "new",
    {"ridge": 2.0, "labels": ["b"]},
    {"Psi": np.ones((4, 5), np.float32), "same": np.arange(3), "more": np.zeros((0, 2))},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the OLD model."""
    model_folder.save(tmp_path / "model", *OLD)
    return tmp_path / "model"


def described(contents: model_folder.Contents) -> Any:
    """Everything in a model that a round trip must keep, types and memory order included."""
    arrays = {
        name: (
            type(array),
            array.dtype.str,
            array.shape,
            array.flags.f_contiguous,
            array.flags.writeable,
            array.tobytes(),
        )
        for name, array in contents.arrays.items()
    }
    return repr((contents.kind, contents.parameters, contents.format, contents.ripml_version)), arrays


def holds(folder: Path, model: tuple[str, dict[str, Any], Arrays]) -> bool:
    contents = model_folder.load(folder)
    kind, parameters, arrays = model
    return (contents.kind, contents.parameters) == (kind, parameters) and all(
        np.array_equal(contents.arrays[name], array) and contents.arrays[name].dtype == array.dtype
        for name, array in arrays.items()
    )


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return manifest


def file_of(folder: Path, array: str = "Psi") -> Path:
    return folder / str(manifest_of(folder)["arrays"][array]["file"])


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as an attacker would, with a checksum that fits."""
    manifest = manifest_of(folder)
    change(manifest)
    (folder / "manifest.json").write_bytes(reseal(manifest))


# --- the round trip ---

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
arrays_of_any_kind = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in DTYPES]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


def any_layout(array: Any, layout: str) -> Any:
    if layout == "reversed" and array.ndim:
        return array[::-1]
    if layout == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    return np.asarray(array, order="F" if layout == "F" else "C")


@given(
    arrays=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True), arrays_of_any_kind, max_size=3
    ),
    layout=st.sampled_from(["C", "F", "reversed", "big-endian"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_of_every_dtype_shape_and_order_come_back_equal(tmp_path: Path, arrays: Arrays, layout: str) -> None:
    given_arrays = {name: any_layout(array, layout) for name, array in arrays.items()}
    model_folder.save(tmp_path / "model", "law", {}, given_arrays)
    loaded = model_folder.load(tmp_path / "model").arrays
    assert list(loaded) == list(arrays)
    for name, array in given_arrays.items():
        assert isinstance(loaded[name], np.memmap)
        assert not loaded[name].flags.writeable
        assert loaded[name].dtype == array.dtype.newbyteorder("<")
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


@given(
    parameters=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), json_values, max_size=5)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parameters_come_back_equal_in_value_type_and_order(tmp_path: Path, parameters: dict[str, Any]) -> None:
    model_folder.save(tmp_path / "model", "law", parameters, {})
    assert repr(model_folder.load(tmp_path / "model").parameters) == repr(parameters)


def test_fortran_order_is_kept(tmp_path: Path) -> None:
    model_folder.save(tmp_path, "x", {}, {"Psi": np.asfortranarray(np.arange(6).reshape(2, 3))})
    loaded = model_folder.load(tmp_path).arrays["Psi"]
    assert loaded.flags.f_contiguous
    assert loaded.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_contents_tell_kind_format_and_writer(folder: Path) -> None:
    contents = model_folder.load(str(folder))
    assert (contents.kind, contents.format) == ("old", 1)
    assert contents.ripml_version == manifest_of(folder)["ripml"]


def test_files_are_named_after_their_content(folder: Path) -> None:
    entry = manifest_of(folder)["arrays"]["Psi"]
    assert entry["file"] == f"Psi-{entry['sha256'][:16]}.npy"
    assert np.array_equal(np.load(folder / entry["file"]), OLD[2]["Psi"])


def test_a_missing_library_version_is_called_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    model_folder.save(tmp_path, *OLD)
    assert model_folder.load(tmp_path).ripml_version == "unknown"


# --- saving over a model ---


def test_saving_over_a_model_replaces_it_and_leaves_no_old_files(folder: Path) -> None:
    model_folder.save(folder, *NEW)
    assert holds(folder, NEW)
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(entry["file"] for entry in manifest_of(folder)["arrays"].values()),
    }


def test_a_loaded_model_can_be_saved_back_into_its_own_folder(folder: Path) -> None:
    contents = model_folder.load(folder)
    model_folder.save(folder, contents.kind, {"changed": True}, {"other_name": contents.arrays["Psi"]})
    assert np.array_equal(contents.arrays["Psi"], OLD[2]["Psi"])
    assert np.array_equal(model_folder.load(folder).arrays["other_name"], OLD[2]["Psi"])


def test_leftovers_of_a_crashed_save_are_cleaned_and_strangers_files_are_kept(folder: Path) -> None:
    for leftover in ("Psi-0123456789abcdef.npy", "Psi.npy.ripml-part", "manifest.json.ripml-part"):
        (folder / leftover).write_bytes(b"half")
    (folder / "A-0123456789abcdef.npy").mkdir()
    strangers = {"README.md", "Psi.npy", "notes-0123.npy", "x.part"}
    for stranger in strangers:
        (folder / stranger).write_bytes(b"mine")
    model_folder.save(folder, *NEW)
    files = {entry["file"] for entry in manifest_of(folder)["arrays"].values()}
    assert {path.name for path in folder.iterdir()} == {*strangers, *files, "manifest.json", "A-0123456789abcdef.npy"}


def test_a_folder_of_other_files_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(
        ModelFolderError, match=r"holds other files but no model, so nothing is saved here; choose a new"
    ):
        model_folder.save(tmp_path, *NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ['{"name": "a web app"}', "[1]", "3", "not JSON", "", "[" * 100_000, "\0"])
def test_a_manifest_of_another_program_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    (tmp_path / "manifest.json.ripml-part").touch()
    with pytest.raises(ModelFolderError, match=r"not a manifest of ripml or is damaged, so nothing is saved here"):
        model_folder.save(tmp_path, *NEW)
    assert (tmp_path / "manifest.json").read_text() == text


def test_a_model_with_a_damaged_array_can_be_saved_over(folder: Path) -> None:
    file_of(folder).write_bytes(b"")
    model_folder.save(folder, *OLD)
    assert holds(folder, OLD)


def test_a_small_manifest_takes_little_memory(folder: Path) -> None:
    tracemalloc.start()
    try:
        model_folder.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_two_saves_at_once_are_refused(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ModelFolderError, match=r"another save into this folder is under way; try again"):
        model_folder.save(folder, *NEW)
    os.close(fd)
    assert holds(folder, OLD)


def test_file_systems_without_folder_locks_or_folder_sync_still_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(fd: int, operation: int) -> None:
        raise OSError(errno.EBADF, "no locks here")

    fsync = os.fsync

    def no_folder_sync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, "no folder sync here")
        fsync(fd)

    monkeypatch.setattr(fcntl, "flock", no_lock)
    monkeypatch.setattr(os, "fsync", no_folder_sync)
    model_folder.save(tmp_path / "a" / "b", *NEW)
    assert holds(tmp_path / "a" / "b", NEW)


# --- what cannot be saved is refused before any file is touched ---


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def containing_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"a": float("nan")}, r"^parameters\['a'\] is nan, but only finite numbers can be saved\.$"),
        ({"a": [1, {"b": float("-inf")}]}, r"^parameters\['a'\]\[1\]\['b'\] is -inf, but only finite"),
        ({"a": (1, 2)}, r"\['a'\] is \(1, 2\) \(tuple\); it must be None, bool, int, float, str, list or dict"),
        ({"a": np.float64(1)}, r"\['a'\] is .* \(float64\); it must be"),
        ({"a": np.int64(1)}, r"\(int64\); it must be"),
        ({"a": {1, 2}}, r"\(set\); it must be"),
        ({"a": b"x"}, r"\(bytes\); it must be"),
        ({"a": os}, r"\(module\); it must be"),
        ({1: 2}, r"^parameters has the key 1, but keys must be str and valid Unicode"),
        ({"a": {None: 2}}, r"^parameters\['a'\] has the key None"),
        ({"\ud83d": 2}, r"has the key .* but keys must be str and valid Unicode"),
        ({"a": "\ud83d\ude00"}, r"\['a'\] is .*, which is not valid Unicode"),
        ({"a": 2**5000}, r"is an integer of more than 4096 bits"),
        ({"a": nested(101)}, r"is nested deeper than 100 levels, or contains itself"),
        (containing_itself(), r"is nested deeper than 100 levels, or contains itself"),
        ([1], r"^`parameters` must be a dict; got \[1\]\.$"),
    ],
)
def test_parameters_that_json_would_change_are_refused(tmp_path: Path, parameters: Any, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        model_folder.save(tmp_path / "model", "x", parameters, {})
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.array([None])}, r"^Array 'a' has dtype object; it must be one of bool, int8"),
        ({"a": np.zeros(2, "f4,i4")}, r"^Array 'a' has dtype .* it must be one of"),
        ({"a": np.array(["x"])}, r"has dtype <U1; it must be one of"),
        ({"a": np.zeros(2, complex)}, r"has dtype complex128; it must be one of"),
        ({"a": np.zeros(2, "M8[s]")}, r"has dtype datetime64\[s\]; it must be one of"),
        ({"a": np.ma.masked_array([1], [True])}, r"^Array 'a' must be a plain numpy array; got MaskedArray"),
        ({"a": [1, 2]}, r"^Array 'a' must be a plain numpy array; got list"),
        ({"../a": np.zeros(1)}, r"^An array's name must start with an ASCII letter or digit, .* got '\.\./a'"),
        ({"": np.zeros(1)}, r"^An array's name must start"),
        ({"a" * 101: np.zeros(1)}, r"^An array's name must start"),
        ({"a\n": np.zeros(1)}, r"^An array's name must start"),
        ({3: np.zeros(1)}, r"^An array's name must start .* got 3"),
    ],
)
def test_arrays_that_npy_cannot_hold_plainly_are_refused(tmp_path: Path, arrays: Any, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        model_folder.save(tmp_path / "model", "x", {}, arrays)
    assert not (tmp_path / "model").exists()


def test_more_dimensions_than_any_numpy_reads_are_refused(tmp_path: Path) -> None:
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("numpy 1 has at most 32 dimensions")
    with pytest.raises(ParameterError, match=r"^Array 'a' has 33 dimensions; at most 32 can be saved"):
        model_folder.save(tmp_path / "model", "x", {}, {"a": np.zeros((1,) * 33)})


@pytest.mark.parametrize("kind", ["", 3, None, "\ud800"])
def test_a_kind_that_is_no_text_is_refused(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(ParameterError, match=r"^`kind` must be a non-empty str; got"):
        model_folder.save(tmp_path / "model", kind, {}, {})


def test_parameters_too_large_for_a_manifest_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "_MAX_MANIFEST_BYTES", 10_000)
    model_folder.save(tmp_path / "model", "x", {"a": "x" * 7000}, {"a" * 100: np.zeros((1,) * 32)})
    model_folder.load(tmp_path / "model")
    with pytest.raises(
        ParameterError, match=r"make a manifest of 1\d{4} bytes, above 10000; keep long lists in arrays"
    ):
        model_folder.save(tmp_path / "model", "x", {"a": "x" * 10_000}, {})


# --- crashes and failures while saving ---

STEPS = ["open", "replace", "unlink", "fsync", "listdir", "makedirs"]


class Died(BaseException):
    """The process is gone: nothing after this runs for real."""


def interrupt(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException, forever: bool) -> list[str]:
    """Let every call of the system from number `step` on (or just that one) fail; returns the calls made."""
    calls: list[str] = []

    def failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == step or (forever and len(calls) > step):
                raise error
            return real(*arguments, **options)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    monkeypatch.setattr(model_folder._Sink, "write", failing("write", model_folder._Sink.write))
    return calls


def steps_of_a_save(tmp_path: Path) -> int:
    model_folder.save(tmp_path / "count", *OLD)
    with pytest.MonkeyPatch.context() as patch:
        calls = interrupt(patch, 10**9, Died("at this step"), forever=True)
        model_folder.save(tmp_path / "count", *NEW)
    assert {"write", "open", "replace", "unlink", "fsync", "listdir"} == set(calls)
    return len(calls)


def test_a_process_that_dies_at_any_step_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    survivors = []
    for step in range(1, steps_of_a_save(tmp_path) + 1):
        folder = tmp_path / str(step)
        model_folder.save(folder, *OLD)
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, step, Died("at this step"), forever=True)
            with pytest.raises(Died, match="at this step"):
                model_folder.save(folder, *NEW)
        assert holds(folder, NEW) or holds(folder, OLD)
        survivors.append(model_folder.load(folder).kind)
        model_folder.save(folder, *NEW)
        assert holds(folder, NEW)
        assert len(list(folder.iterdir())) == 1 + len(NEW[2])
    assert survivors == sorted(survivors, reverse=True), "one commit point: old before it, new after it"
    assert set(survivors) == {"old", "new"}


def test_a_first_save_that_dies_at_any_step_leaves_a_folder_that_can_be_saved_to(tmp_path: Path) -> None:
    for step in range(1, steps_of_a_save(tmp_path) + 5):
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, step, Died("at this step"), forever=True)
            with contextlib.suppress(Died):
                model_folder.save(folder, *NEW)
        if (folder / "manifest.json").exists():
            assert holds(folder, NEW)
        else:
            with pytest.raises(
                ModelFolderError, match=r"cannot be opened|manifest\.json: this file of the model is missing"
            ):
                model_folder.load(folder)
        model_folder.save(folder, *OLD)
        assert holds(folder, OLD)
        assert len(list(folder.iterdir())) == 1 + len(OLD[2])


def test_a_failed_first_save_that_dies_while_cleaning_up_leaves_a_folder_that_can_be_saved_to(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = interrupt(patch, 10**9, Died("never"), forever=True)
        model_folder.save(tmp_path / "count", *NEW)
    full = max(step for step, call in enumerate(calls, 1) if call == "write")
    for more in range(1, 8):
        folder = tmp_path / str(more)
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, full, OSError(errno.ENOSPC, "disk full"), forever=False)
            interrupt(patch, full + more, Died("in the clean-up"), forever=True)
            with pytest.raises((Died, ModelFolderError), match=r"in the clean-up|could not be saved \(disk full\)"):
                model_folder.save(folder, *NEW)
        model_folder.save(folder, *OLD)
        assert holds(folder, OLD)
        assert len(list(folder.iterdir())) == 1 + len(OLD[2])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_fails_at_any_one_step_gives_a_sentence_and_a_whole_model(tmp_path: Path, number: int) -> None:
    reason = os.strerror(number)
    for step in range(1, steps_of_a_save(tmp_path) + 1):
        folder = tmp_path / str(step)
        model_folder.save(folder, *OLD)
        with pytest.MonkeyPatch.context() as patch:
            calls = interrupt(patch, step, OSError(number, reason), forever=False)
            try:
                model_folder.save(folder, *NEW)
            except ModelFolderError as error:
                failure = str(error)
            else:
                failure = ""
        if "unchanged" in failure or "created" in failure:
            assert reason in failure
            assert holds(folder, OLD)
            if calls[-1] != "replace":
                assert len(list(folder.iterdir())) == 1 + len(OLD[2]), "a failed save cleans up after itself"
        else:
            assert holds(folder, NEW) or "cannot be read" in failure
        assert "\n" not in failure


def test_a_full_disk_is_named_and_the_old_model_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def open_full(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith(".npy.ripml-part"):
            return real("/dev/full", os.O_WRONLY)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_full)
    with pytest.raises(ModelFolderError, match=r"could not be saved \(No space left on device\); what .* is unchanged"):
        model_folder.save(folder, *NEW)
    assert holds(folder, OLD)


def test_a_file_size_limit_in_the_middle_of_an_array_leaves_the_old_model(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(ModelFolderError, match=r"could not be saved \(File too large\)"):
            model_folder.save(folder, "big", {}, {"small": np.zeros(3), "large": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert holds(folder, OLD)
    assert len(list(folder.iterdir())) == 1 + len(OLD[2])


def test_a_disk_that_does_not_confirm_the_rename_is_reported_without_removing_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name for path in folder.glob("*.npy")}
    real, replaced = os.replace, []

    def replace(source: str, target: str, **options: Any) -> None:
        real(source, target, **options)
        replaced.append(target)

    def fsync(fd: int) -> None:
        if "manifest.json" in replaced:
            raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ModelFolderError, match=r"new model is in place, but the disk did not confirm it \(I/O error\)"):
        model_folder.save(folder, *NEW)
    assert holds(folder, NEW)
    assert files <= {path.name for path in folder.glob("*.npy")}, "after a power cut the old manifest may be back"


def test_an_interrupt_right_after_the_commit_keeps_the_new_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replace(source: str, target: str, **options: Any) -> None:
        real(source, target, **options)
        if target == "manifest.json":
            raise KeyboardInterrupt("at the worst moment")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt, match="worst moment"):
        model_folder.save(folder, *NEW)
    assert holds(folder, NEW)


def test_a_read_only_folder_is_named() -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        model_folder.save(folder, *OLD)
        os.chmod(parent, 0o755)
        folder.chmod(0o555)
        user = os.geteuid()
        os.seteuid(user or 65534)  # root may write anywhere
        try:
            with pytest.raises(
                ModelFolderError, match=r"could not be saved \(Permission denied\); what .* is unchanged"
            ):
                model_folder.save(folder, *NEW)
        finally:
            os.seteuid(user)
        assert holds(folder, OLD)
        folder.chmod(0o755)


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", "a\0b", ""):
        with pytest.raises(ModelFolderError, match=r"this model folder cannot be created \("):
            model_folder.save(path, *NEW)
        with pytest.raises(ModelFolderError, match=r"this model folder cannot be opened \("):
            model_folder.load(path)


def test_every_file_is_on_the_disk_before_it_gets_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    real_replace, real_fsync, real_unlink = os.replace, os.fsync, os.unlink

    def fsync(fd: int) -> None:
        real_fsync(fd)
        events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))

    def replace(source: str, target: str, **options: Any) -> None:
        real_replace(source, target, **options)
        events.append(("replace", source))

    def unlink(name: str, **options: Any) -> None:
        real_unlink(name, **options)
        events.append(("unlink", name))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "unlink", unlink)
    old = file_of(folder).name
    model_folder.save(folder, *NEW)
    arrays = [(what, f"{name}.npy.ripml-part") for name in NEW[2] for what in ("fsync", "replace")]
    commit = [("fsync", "model"), ("fsync", "manifest.json.ripml-part"), ("replace", "manifest.json.ripml-part")]
    assert events == [*arrays, *commit, ("fsync", "model"), ("unlink", old)]


KILLED_SAVES = """
import os, signal, sys
import numpy as np
from ripml.base import model_folder

folder = sys.argv[1]
Z = np.arange(5)
models = [("old", {"n": 1}, {"Psi": np.zeros(9), "Z": Z}), ("new", {"n": 2}, {"Psi": np.ones(7), "Z": Z})]
source = model_folder.__file__

def child(line):
    left = line
    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != source:
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    model_folder.save(folder, *models[1])
    os._exit(0)

line, kinds = 1, set()
while True:
    model_folder.save(folder, *models[0])
    if not (pid := os.fork()):
        child(line)
    status = os.waitpid(pid, 0)[1]
    contents = model_folder.load(folder)
    expected = dict((kind, (parameters, arrays)) for kind, parameters, arrays in models)[contents.kind]
    assert contents.parameters == expected[0]
    assert all(np.array_equal(contents.arrays[name], array) for name, array in expected[1].items())
    kinds.add(contents.kind)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    line += 1
print(line, *sorted(kinds))
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(model_folder.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_process_killed_at_any_line_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    result = run_python(KILLED_SAVES, str(tmp_path / "model"))
    assert result.returncode == 0, result.stderr
    lines, *kinds = result.stdout.split()
    assert int(lines) > 100
    assert kinds == ["new", "old"]


# --- readers beside a writer ---


def test_a_reader_that_races_with_a_save_gets_the_new_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = model_folder._read_model
    saves = iter([lambda: model_folder.save(folder, *NEW)])

    def read_after_a_save(opened: Any, text: bytes) -> model_folder.Contents:
        next(saves, lambda: None)()
        return read(opened, text)

    monkeypatch.setattr(model_folder, "_read_model", read_after_a_save)
    assert holds(folder, NEW)


def test_a_reader_gives_up_on_a_folder_that_never_stands_still(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, count = model_folder._read_model, iter(range(1000))

    def read_after_a_save(opened: Any, text: bytes) -> model_folder.Contents:
        model_folder.save(folder, "moving", {}, {"Psi": np.full(3, next(count))})
        return read(opened, text)

    monkeypatch.setattr(model_folder, "_read_model", read_after_a_save)
    with pytest.raises(ModelFolderError, match=r"Psi-[0-9a-f]{16}\.npy: this file of the model is missing"):
        model_folder.load(folder)
    assert next(count) == 10


# --- damaged and hostile folders ---


def refused(folder: Path, sentence: str) -> None:
    """One sentence that names the file, and no warning on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ModelFolderError, match=sentence) as caught:
            model_folder.load(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}{os.sep}")
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 600


def test_a_changed_parameter_is_noticed(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"ridge": 0.5', '"ridge": 0.6'))
    refused(
        folder, r"manifest\.json: this manifest cannot be used: its content does not match its sha256, so it is damaged"
    )


def test_a_changed_byte_in_an_array_is_noticed(folder: Path) -> None:
    data = bytearray(file_of(folder).read_bytes())
    data[-1] ^= 1
    file_of(folder).write_bytes(data)
    refused(folder, r"Psi-.*\.npy: its content does not match its sha256 in the manifest, so it is damaged")


@pytest.mark.parametrize("size", [0, 5, 10, 60, 128, 200])
def test_a_truncated_array_is_noticed(folder: Path, size: int) -> None:
    os.truncate(file_of(folder), size)
    refused(
        folder, r"Psi-.*\.npy: (this is not a \.npy file|its header .* is not that of a plain|this file has \d+ bytes)"
    )


def test_a_newer_format_names_the_remedy(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 7, "whatever": "comes then"}')
    refused(
        folder,
        r"was written by a newer ripml \(format 7\); this one reads up to 1; upgrade with `pip install -U ripml`",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "Expecting value"),
        (b"{}", "its keys must be format, ripml, kind, parameters, arrays and sha256, not"),
        (b"[]", "a JSON object is expected"),
        (b"null", "a JSON object is expected"),
        (b"\xff{}", "codec can't decode"),
        ("{}".encode("utf-16"), "codec can't decode"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 1_000_000, "recursion"),
        (b'{"a":' * 1_000_000, "recursion"),
        (b'{"format": NaN}', "NaN is not a finite number"),
        (b'{"format": -Infinity}', "-Infinity is not a finite number"),
        (b'{"format": 1, "format": 1}', "the key 'format' appears twice"),
        (b'{"x": {"a": 1, "a": 2}}', "the key 'a' appears twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "an integer has 5000 digits"),
        (b'{"format": ' + b"9" * 1000 + b"}", r"newer ripml \(format 99.*\.\.\..*99\)"),
    ],
)
def test_a_manifest_that_is_no_manifest_is_refused(folder: Path, text: bytes, sentence: str) -> None:
    (folder / "manifest.json").write_bytes(text)
    refused(folder, rf"manifest\.json: this manifest cannot be used: .*{sentence}")


@pytest.mark.parametrize("value", ["1e999", "-1e999"])
def test_numbers_that_overflow_are_refused(folder: Path, value: str) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("0.5", value))
    refused(folder, r"manifest cannot be used: Out of range float values are not JSON compliant")


def test_a_lone_surrogate_is_refused(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"old"', '"\\ud800"'))
    refused(folder, r"manifest cannot be used: .*surrogates not allowed")


def test_a_manifest_of_many_values_is_refused_before_they_fill_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "manifest.json").write_bytes(b"[" + b"[]," * 2**20 + b"[]]")

    def parsed(*_: Any, **__: Any) -> None:
        raise AssertionError("the manifest was parsed")

    monkeypatch.setattr(json, "loads", parsed)
    refused(folder, r"manifest\.json: this has more than the 2097152 values that a manifest may have")


def test_a_million_names_pass_and_more_values_than_can_be_loaded_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model_folder._most_values(b'["name", ' + b'"name", ' * 10**6) < model_folder._MAX_MANIFEST_VALUES
    monkeypatch.setattr(model_folder, "_MAX_MANIFEST_VALUES", 1000)
    with pytest.raises(ParameterError, match=r"make a manifest of 10.. values, above 1000; keep long lists in arrays"):
        model_folder.save(tmp_path / "model", "example", {"list": list(range(1000))}, {})


def test_a_manifest_of_huge_size_is_refused_unread(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 2**40)
    refused(folder, r"manifest\.json: this is larger than the 67108864 bytes that a manifest may have")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("format", 0, "format 0 is not known; this ripml reads format 1"),
        ("format", True, "format must be of type int, not True"),
        ("format", 1.0, r"format must be of type int, not 1\.0"),
        ("format", "1", "format must be of type int, not '1'"),
        ("ripml", None, "ripml must be of type str, not None"),
        ("kind", ["x"], r"kind must be of type str, not \['x'\]"),
        ("kind", nested(300), r"kind must be of type str, not \[\[\[\[\[\[\[\.\.\."),
        ("parameters", [], r"parameters must be of type dict, not \[\]"),
        ("arrays", [], r"arrays must be of type dict, not \[\]"),
        ("arrays", {"../x": {}}, r"array '\.\./x' has an impossible name"),
        ("arrays", {"x": []}, r"array 'x' must have file, dtype, shape, sha256, not \[\]"),
        ("extra", 1, "its keys must be"),
    ],
)
def test_wrong_types_in_a_resealed_manifest_are_refused(folder: Path, key: str, value: Any, sentence: str) -> None:
    forge(folder, lambda manifest: manifest.update({key: value}))
    refused(folder, rf"manifest\.json: this manifest cannot be used: {sentence}")


WRONG_ENTRIES: list[tuple[str, str, list[Any]]] = [
    ("file", "names the file .*, not Psi-", ["../x.npy", "/etc/passwd", "a\0b", "", ".", 3, None, []]),
    ("sha256", "has the sha256", [None, 3, "", "x" * 64, "A" * 64, "0" * 63, "0" * 64 + "\n", []]),
    ("dtype", "has the dtype", ["object", "|O", "<f8", ">f8", "complex128", "V8", "U3", 8, None, []]),
    ("shape", "has the impossible shape", [None, 3, "3", {}, [-1], [1.0], [True], ["3"], [None], [1] * 33]),
    ("shape", "has the impossible shape", [[2**63], [2**62, 2], [0, 2**63], [10**1200] * 3]),
]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [(key, value, sentence) for key, sentence, values in WRONG_ENTRIES for value in values],
)
def test_wrong_entries_in_a_resealed_manifest_are_refused(folder: Path, key: str, value: Any, sentence: str) -> None:
    forge(folder, lambda manifest: manifest["arrays"]["Psi"].update({key: value}))
    refused(folder, rf"manifest\.json: this manifest cannot be used: array 'Psi' {sentence}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dtype", "float32"),
        ("dtype", "int64"),
        ("shape", [4, 3]),
        ("shape", [12]),
        ("shape", []),
        ("shape", [3, 2**50]),
    ],
)
def test_a_header_that_contradicts_a_resealed_manifest_is_refused(folder: Path, key: str, value: Any) -> None:
    forge(folder, lambda manifest: manifest["arrays"]["Psi"].update({key: value}))
    refused(folder, r"Psi-.*\.npy: its header says <f8 \(3, 4\), the manifest <")


@pytest.mark.parametrize("header", BAD_HEADERS, ids=lambda header: header[:40])
def test_headers_that_ask_for_trouble_are_refused_unevaluated(folder: Path, header: str) -> None:
    reseal_array(folder, "Psi", npy(header), dtype="float32", shape=[3])
    refused(folder, r"Psi-.*\.npy: its header")


def test_a_pickled_array_is_refused(folder: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}, None]), allow_pickle=True)
    reseal_array(folder, "Psi", buffer.getvalue(), shape=[2])
    refused(folder, r"its header says \|O \(2,\), the manifest <f8 \(2,\)")


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00", b"\x01\x01", b"\xff\xff"])
def test_other_npy_versions_with_their_huge_headers_are_refused(folder: Path, version: bytes) -> None:
    reseal_array(folder, "Psi", b"\x93NUMPY" + version + b"\xff" * 500)
    refused(folder, r"Psi-.*\.npy: this is not a \.npy file of version 1\.0")


@pytest.mark.parametrize("shape", [[2**40], [2**60], [2**30, 2**29]])
def test_shapes_beyond_the_file_are_refused_without_memory(folder: Path, shape: list[int]) -> None:
    dims = f"{tuple(shape)}"
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {dims}, }}"
    reseal_array(folder, "Psi", npy(header), dtype="float32", shape=shape)
    refused(folder, r"Psi-.*\.npy: this file has \d+ bytes instead of \d+, so it is damaged")


@pytest.mark.parametrize("name", ["manifest.json", "Psi"])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing", "this file of the model is missing"),
        ("FIFO", "this is not a regular file"),
        ("folder", "this is not a regular file"),
        ("link to a copy", "this is a symbolic link, which is not followed; put the file itself in its place"),
        ("link to itself", "this is a symbolic link"),
        ("link to a device", "this is a symbolic link"),
    ],
)
def test_files_that_are_not_files_are_refused_without_waiting(
    folder: Path, name: str, kind: str, sentence: str
) -> None:
    path = folder / name if name == "manifest.json" else file_of(folder)
    path.rename(folder.parent / "copy")
    targets = {"copy": str(folder.parent / "copy"), "itself": path.name, "device": "/dev/zero"}
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.symlink_to(targets[kind.rsplit(maxsplit=1)[-1]])
    refused(folder, rf"{path.name}: {sentence}")


def test_an_unreadable_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: Any) -> str:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(model_folder, "_sha256", fail)
    refused(folder, r"Psi-.*\.npy: this file cannot be read \(I/O error\)")


def test_a_link_to_a_model_folder_and_a_reformatted_manifest_load(folder: Path) -> None:
    (folder.parent / "latest").symlink_to(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest_of(folder), indent=7))
    assert holds(folder.parent / "latest", OLD)


def test_loading_leaves_no_descriptor_open_once_the_arrays_are_gone(folder: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(3):
        model_folder.load(folder)
    os.truncate(file_of(folder), 3)
    for _ in range(3):
        refused(folder, "not a .npy file")
    assert descriptors() == before


def test_five_hundred_random_mutations_are_refused_or_harmless(tmp_path: Path) -> None:
    arrays: Arrays = {
        "Psi": np.arange(12.0).reshape(3, 4),
        "Z": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "empty": np.zeros((0, 2), np.int32),
        "scalar": np.array(True),
    }
    model_folder.save(tmp_path / "model", *OLD[:2], arrays)
    original = described(model_folder.load(tmp_path / "model"))
    refusals = 0
    for number in range(500):
        case = tmp_path / str(number)
        shutil.copytree(tmp_path / "model", case)
        what = mutate(case, random.Random(number))
        try:
            found = described(model_folder.load(case))
        except ModelFolderError:
            refusals += 1
        else:
            assert forged(what) or found == original, f"mutation {number}: {what}"
        shutil.rmtree(case)
    assert refusals > 350
