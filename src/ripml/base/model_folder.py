"""A model on disk: a folder ⇄ (parameters, arrays), without pickle, crash-safe, and safe to read from a stranger.

    model/
      manifest.json               format, kind, parameters; file, dtype, shape and sha256 of each array
      Psi-3f9a0c5d1e2b4a67.npy    one plain .npy file per array, named after its content

A file never changes once it has its name. Saving adds the new arrays under new names and then replaces the manifest
with one atomic rename: that is the only moment at which the model changes, so a crash leaves the old model or the new
one. Loading trusts nothing that it has not checked: the manifest has a checksum of every array and of itself, no value
in it can name a path, and headers are compared with what is expected, never evaluated.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ripml.base import platform
from ripml.base.errors import ModelFolderError, NewerFormatError, ParameterError
from ripml.base.parallel import blocks
from ripml.base.workspace import release

__all__ = ["Contents", "load", "save"]

_FORMAT = 1
_MANIFEST = "manifest.json"
_PART = ".ripml-part"  # ends the name of a file that is still being written
# Exists from the first step of a save until it becomes the manifest: it marks a folder without a manifest as ours.
_CLAIM = _MANIFEST + _PART
_MANIFEST_TYPES = {"format": int, "ripml": str, "kind": str, "parameters": dict, "arrays": dict}
_ENTRY_KEYS = ("file", "dtype", "shape", "sha256")
_ARRAY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_OUR_FILE = re.compile(rf"{_ARRAY_NAME.pattern}(-[0-9a-f]{{16}}\.npy|\.npy{re.escape(_PART)})|{re.escape(_CLAIM)}")
_NPY_HEADER = re.compile(r"\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': (\([0-9, ]*\)), \} *\n")
_DTYPES = {
    **{"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4"},
    **{"int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8"},
}
_MAX_MANIFEST_BYTES = 64 * 2**20
# A value takes a byte or two in the file and up to a hundred in memory. Label names are in arrays, and a million names
# of features pass.
_MAX_MANIFEST_VALUES = 2**21
_MAX_DEPTH = 100
_MAX_DIMS = 32  # numpy 1's limit: what numpy 2 saves, numpy 1 must read
_MAX_INT_BITS = 4096  # Python itself refuses to read integers of more than 4300 digits
_MAX_INT_DIGITS = 1300
_READ_ATTEMPTS = 10
_WRITE_BYTES = 1 << 24  # written at a time

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 80


@dataclass(frozen=True, eq=False)
class Contents:
    """What a model folder holds; `arrays` are read-only memory maps, so only the parts in use occupy memory."""

    kind: str
    parameters: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    format: int
    ripml_version: str


def save(
    path: str | os.PathLike[str], kind: str, parameters: dict[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Save a model into the folder `path`, replacing a model that is already there in one atomic step.

    `parameters` may hold None, bool, int, finite float, str, list and dict with str keys: what comes back is equal in
    value and type. `arrays` may be bool, integer or float of up to 64 bits, of any shape and memory order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder, "example", {"ridge": 0.5}, {"Psi": np.eye(3)})
    ...     load(folder).arrays["Psi"].shape
    (3, 3)
    """
    header = {"format": _FORMAT, "ripml": _library_version(), "kind": kind, "parameters": parameters}
    _check_savable(header, arrays)
    with _opened(os.fspath(path), create=True) as folder:
        try:
            _lock(folder)
            _replace_model(folder, header, arrays)
        except OSError as error:
            reason = f"the model could not be saved ({error.strerror or error})"
            raise ModelFolderError(f"{folder.path}: {reason}; what the folder held before is unchanged.") from error


def load(path: str | os.PathLike[str]) -> Contents:
    """Load the model in the folder `path`; `ModelFolderError` for anything that is damaged, foreign or hostile.

    Every byte is checked against its checksum before it is used; the arrays are memory maps, not copies. A folder that
    is being saved to can be loaded at any time: the result is the model before or after that save.

    >>> load("no/such/folder")
    Traceback (most recent call last):
    ripml.base.errors.ModelFolderError: no/such/folder: this model folder cannot be opened (No such file or directory).
    """
    with _opened(os.fspath(path)) as folder:
        attempts = 0
        while True:
            attempts += 1
            text = folder.manifest()
            try:
                return _read_model(folder, text)
            except _FileMissing:
                # A save may have replaced the model while it was being read; with an unchanged manifest it did not.
                if attempts == _READ_ATTEMPTS or folder.manifest() == text:
                    raise


class _FileMissing(ModelFolderError):
    """The manifest, or a file that it names, is missing."""


@dataclass(frozen=True)
class _Folder:
    """An open folder: files are opened relative to its descriptor, so the folder may be moved meanwhile.

    Where folders have no descriptors, `fd` is None and files are opened by their paths."""

    path: str
    fd: int | None

    def names(self) -> set[str]:
        return set(os.listdir(self.path if self.fd is None else self.fd))

    def open(self, name: str, flags: int) -> int:
        return platform.open_file(self._at(name), flags, dir_fd=self.fd)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self.fd is None else name

    def error(self, name: str, problem: object) -> ModelFolderError:
        return ModelFolderError(f"{os.path.join(self.path, name)}: {problem}.")

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a regular file and yield it with its size; never follow a link, never wait for the writer of a FIFO."""
        try:
            fd = self.open(name, os.O_RDONLY)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise self.error(name, "this is not a regular file")
                with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
                    yield file, status.st_size
            finally:
                os.close(fd)
        except FileNotFoundError as error:
            raise _FileMissing(f"{os.path.join(self.path, name)}: this file of the model is missing.") from error
        except OSError as error:
            reason = f"this file cannot be read ({error.strerror or error})"
            if error.errno == errno.ELOOP:
                reason = "this is a symbolic link, which is not followed; put the file itself in its place"
            raise self.error(name, reason) from error

    def manifest(self) -> bytes:
        with self.reading(_MANIFEST) as (file, size):
            # Not more than the file has: a read takes the memory that it is asked for, however little comes.
            text = file.read(size + 1) if size <= _MAX_MANIFEST_BYTES else None
        if text is None or len(text) > _MAX_MANIFEST_BYTES:
            raise self.error(_MANIFEST, f"this is larger than the {_MAX_MANIFEST_BYTES} bytes that a manifest may have")
        if _most_values(text) > _MAX_MANIFEST_VALUES:
            raise self.error(
                _MANIFEST, f"this has more than the {_MAX_MANIFEST_VALUES} values that a manifest may have"
            )
        return text

    def write(self, part: str, produce: Callable[[_Sink], object]) -> str:
        """Write a temporary file to the disk itself and return its sha256."""
        with os.fdopen(self.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            sink = _Sink(file)
            produce(sink)
            file.flush()
            os.fsync(file.fileno())
        return sink.sha256.hexdigest()

    def rename(self, part: str, name: str) -> None:
        os.replace(self._at(part), self._at(name), src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def sync(self) -> None:
        if self.fd is None:
            return
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # network file systems that cannot sync a folder
                raise

    def sweep(self, keep: set[str]) -> None:
        """Remove our files except those to keep, the claim last; the next save tries again what cannot be removed."""
        names: set[str] = set()
        with contextlib.suppress(OSError):
            names = self.names() - keep
        for name in sorted(filter(_OUR_FILE.fullmatch, names), key=_CLAIM.__eq__):
            with contextlib.suppress(OSError):
                os.unlink(self._at(name), dir_fd=self.fd)


class _Sink:
    """A file that computes the checksum of what is written. It is not a real file, so NumPy does not use `tofile`,
    which hides the reason of a failed write."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)


@contextlib.contextmanager
def _opened(path: str, create: bool = False) -> Iterator[_Folder]:
    try:
        if create and not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            with _opened(os.path.dirname(os.path.abspath(path))) as parent:
                parent.sync()
        fd = platform.open_folder(path)
    except (OSError, ValueError) as error:
        action, reason = "created" if create else "opened", getattr(error, "strerror", None) or error
        raise ModelFolderError(f"{path}: this model folder cannot be {action} ({reason}).") from error
    try:
        yield _Folder(path, fd)
    finally:
        if fd is not None:
            os.close(fd)


def _lock(folder: _Folder) -> None:
    """Refuse a second save until the folder is closed; the system drops the lock of a process that dies."""
    if folder.fd is None:
        return
    try:
        platform.lock(folder.fd)
    except BlockingIOError as error:
        message = f"{folder.path}: another save into this folder is under way; try again when it has finished."
        raise ModelFolderError(message) from error
    except OSError:
        pass  # network file systems that cannot lock a folder: there, as without descriptors, do not save twice at once


def _replace_model(folder: _Folder, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    before = folder.names()
    _refuse_strangers(folder, before)
    committing = False
    try:
        os.close(folder.open(_CLAIM, os.O_WRONLY | os.O_CREAT))
        entries = {name: _write_array(folder, name, array) for name, array in arrays.items()}
        folder.sync()  # the arrays' names must be on the disk before a manifest that refers to them
        text = _manifest_text(header, entries)
        folder.write(_CLAIM, lambda sink: sink.write(text))
        committing = True  # set before the rename: an interrupt right after it must not remove the new arrays
        folder.rename(_CLAIM, _MANIFEST)
    finally:
        if not committing:
            folder.sweep(keep=before)
    try:
        folder.sync()
    except OSError as error:
        reason = f"the disk did not confirm it ({error.strerror or error}); save it again"
        raise folder.error(_MANIFEST, f"the new model is in place, but {reason}") from error
    folder.sweep(keep={entry["file"] for entry in entries.values()})


def _refuse_strangers(folder: _Folder, names: set[str]) -> None:
    remedy = "so nothing is saved here; choose a new or empty folder"
    if _MANIFEST not in names:
        if names and _CLAIM not in names:
            raise ModelFolderError(f"{folder.path}: this folder holds other files but no model, {remedy}.")
        return
    text = folder.manifest()
    try:
        ours = json.loads(text).keys() >= {"format", "ripml"}
    except (ValueError, AttributeError, RecursionError):
        ours = False
    if not ours:
        raise folder.error(_MANIFEST, f"this is not a manifest of ripml or is damaged, {remedy}")


def _write_array(folder: _Folder, name: str, array: NDArray[Any]) -> dict[str, Any]:
    plain = np.asarray(array, dtype=_DTYPES[array.dtype.name])
    part = f"{name}.npy{_PART}"
    sha256 = folder.write(part, lambda sink: _write_npy(sink, plain))
    folder.rename(part, _file_name(name, sha256))
    shape = list(plain.shape)
    return {"file": _file_name(name, sha256), "dtype": array.dtype.name, "shape": shape, "sha256": sha256}


def _write_npy(sink: _Sink, array: NDArray[Any]) -> None:
    """As `np.save`, but with only a block in memory at a time if the array is mapped from a file."""
    if not array.flags.c_contiguous or not array.ndim:
        np.lib.format.write_array(sink, array, (1, 0), allow_pickle=False)
        return
    np.lib.format.write_array_header_1_0(sink, np.lib.format.header_data_from_array_1_0(array))
    flat = array.reshape(-1)
    for block in blocks(len(flat), _WRITE_BYTES // array.itemsize):
        sink.write(flat[block].tobytes())
        release(flat[block])


def _file_name(name: str, sha256: str) -> str:
    return f"{name}-{sha256[:16]}.npy"


def _library_version() -> str:
    try:
        return importlib.metadata.version("ripml")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _checksum(manifest: dict[str, Any]) -> str:
    """The sha256 of a manifest's content: of its compact JSON, without the checksum itself and whatever its layout."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _manifest_text(header: dict[str, Any], entries: dict[str, Any]) -> bytes:
    manifest = {**header, "arrays": entries}
    manifest["sha256"] = _checksum(manifest)
    return (json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()


def _most_values(text: bytes) -> int:
    """A bound on the values of a JSON text, found without reading it: each follows one of these characters."""
    return sum(text.count(mark) for mark in (b",", b":", b"[", b"{"))


def _check_savable(header: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    kind, parameters = header["kind"], header["parameters"]
    if type(kind) is not str or not kind or _json_problem(kind):
        raise ParameterError(f"`kind` must be a non-empty str; got {_brief.repr(kind)}.")
    if type(parameters) is not dict:
        raise ParameterError(f"`parameters` must be a dict; got {_brief.repr(parameters)}.")
    if problem := _json_problem(parameters):
        raise ParameterError(f"parameters{problem}.")
    for name, array in arrays.items():
        if not isinstance(name, str) or not _ARRAY_NAME.fullmatch(name):
            rule = "start with an ASCII letter or digit, followed by at most 99 letters, digits, '_', '.' or '-'"
            raise ParameterError(f"An array's name must {rule}; got {_brief.repr(name)}.")
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise ParameterError(f"Array {name!r} must be a plain numpy array; got {type(array).__name__}.")
        if array.dtype.name not in _DTYPES:
            raise ParameterError(f"Array {name!r} has dtype {array.dtype}; it must be one of {', '.join(_DTYPES)}.")
        if array.ndim > _MAX_DIMS:
            raise ParameterError(f"Array {name!r} has {array.ndim} dimensions; at most {_MAX_DIMS} can be saved.")
    text = _manifest_text(header, {})
    if (values := _most_values(text) + 64 * len(arrays)) > _MAX_MANIFEST_VALUES:
        limit = f"above {_MAX_MANIFEST_VALUES}; keep long lists in arrays"
        raise ParameterError(f"The parameters make a manifest of {values} values, {limit}.")
    size = len(text) + 2048 * len(arrays)  # more than any array's entry takes
    if size > _MAX_MANIFEST_BYTES:
        limit = f"above {_MAX_MANIFEST_BYTES}; keep long lists in arrays"
        raise ParameterError(f"The parameters make a manifest of {size} bytes, {limit}.")


def _json_problem(value: Any, depth: int = 0) -> str | None:
    """Why a value would not come back from JSON with equal value and type, after the path to it; None if it would."""
    kind = type(value)  # exactly: a numpy float is a float, but would come back as another type
    if depth > _MAX_DEPTH:
        return f" is nested deeper than {_MAX_DEPTH} levels, or contains itself"
    if kind is str:  # two lone surrogates side by side would come back as one character
        return f" is {_brief.repr(value)}, which is not valid Unicode" if re.search("[\ud800-\udfff]", value) else None
    if kind is int:
        return f" is an integer of more than {_MAX_INT_BITS} bits" if value.bit_length() > _MAX_INT_BITS else None
    if kind is float:
        return None if math.isfinite(value) else f" is {value}, but only finite numbers can be saved"
    if kind is list:
        found = ((i, _json_problem(item, depth + 1)) for i, item in enumerate(value))
        return next((f"[{i}]{problem}" for i, problem in found if problem), None)
    if kind is dict:
        if odd := [key for key in value if type(key) is not str or _json_problem(key)]:
            return f" has the key {_brief.repr(odd[0])}, but keys must be str and valid Unicode"
        found = ((key, _json_problem(item, depth + 1)) for key, item in value.items())
        return next((f"[{_brief.repr(key)}]{problem}" for key, problem in found if problem), None)
    if value is None or kind is bool:
        return None
    allowed = "None, bool, int, float, str, list or dict, and nothing derived from them"
    return f" is {_brief.repr(value)} ({kind.__name__}); it must be {allowed}"


def _read_model(folder: _Folder, text: bytes) -> Contents:
    try:
        manifest = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
        _check_manifest(manifest)
        for name, entry in manifest["arrays"].items():
            _check_entry(name, entry)
    except NewerFormatError as error:
        raise NewerFormatError(str(folder.error(_MANIFEST, f"this manifest cannot be used: {error}"))) from None
    except (ValueError, RecursionError) as error:
        raise folder.error(_MANIFEST, f"this manifest cannot be used: {error}") from error
    arrays = {name: _mapped(folder, entry) for name, entry in manifest["arrays"].items()}
    return Contents(manifest["kind"], manifest["parameters"], arrays, manifest["format"], manifest["ripml"])


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in items:
        if key in result:
            raise ValueError(f"the key {_brief.repr(key)} appears twice")
        result[key] = value
    return result


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_INT_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits")
    return int(digits)


def _check_manifest(manifest: Any) -> None:
    if type(manifest) is not dict:
        raise ValueError(f"a JSON object is expected, not {_brief.repr(manifest)}")
    number = manifest.get("format")
    if type(number) is int and number > _FORMAT:
        found = f"it was written by a newer ripml (format {_brief.repr(number)})"
        raise NewerFormatError(f"{found}; this one reads up to {_FORMAT}; upgrade with `pip install -U ripml`")
    if manifest.keys() != {*_MANIFEST_TYPES, "sha256"}:
        expected = f"{', '.join(_MANIFEST_TYPES)} and sha256"
        raise ValueError(f"its keys must be {expected}, not {_brief.repr(list(manifest))}")
    if manifest["sha256"] != _checksum(manifest):
        raise ValueError("its content does not match its sha256, so it is damaged")
    for key, kind in _MANIFEST_TYPES.items():
        if type(manifest[key]) is not kind:
            raise ValueError(f"{key} must be of type {kind.__name__}, not {_brief.repr(manifest[key])}")
    if number != _FORMAT:
        raise ValueError(f"format {_brief.repr(number)} is not known; this ripml reads format {_FORMAT}")


def _check_entry(name: str, entry: Any) -> None:
    where = f"array {_brief.repr(name)}"
    if not _ARRAY_NAME.fullmatch(name):
        raise ValueError(f"{where} has an impossible name")
    if type(entry) is not dict or entry.keys() != set(_ENTRY_KEYS):
        raise ValueError(f"{where} must have {', '.join(_ENTRY_KEYS)}, not {_brief.repr(entry)}")
    file, dtype, shape, sha256 = (entry[key] for key in _ENTRY_KEYS)
    if type(sha256) is not str or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"{where} has the sha256 {_brief.repr(sha256)}")
    if file != _file_name(name, sha256):  # which also rules out every name that leads out of the folder
        raise ValueError(f"{where} names the file {_brief.repr(file)}, not {_file_name(name, sha256)}")
    if type(dtype) is not str or dtype not in _DTYPES:
        raise ValueError(f"{where} has the dtype {_brief.repr(dtype)}, not one of {', '.join(_DTYPES)}")
    if type(shape) is not list or len(shape) > _MAX_DIMS or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise ValueError(f"{where} has the impossible shape {_brief.repr(shape)}")
    # NumPy's limit, which counts a zero dimension as one.
    if math.prod(max(dim, 1) for dim in shape) * np.dtype(dtype).itemsize >= 2**63:
        raise ValueError(f"{where} has the impossible shape {_brief.repr(shape)}")


def _mapped(folder: _Folder, entry: dict[str, Any]) -> NDArray[Any]:
    """Check a file from its header to its last byte, then map it, all through one descriptor: it is the same file."""
    name, shape, dtype = entry["file"], tuple(entry["shape"]), np.dtype(_DTYPES[entry["dtype"]])
    with folder.reading(name) as (file, size):
        start = file.read(10)
        if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
            raise folder.error(name, "this is not a .npy file of version 1.0")
        header = file.read(int.from_bytes(start[8:], "little"))
        if not (match := _NPY_HEADER.fullmatch(header.decode("latin-1"))):
            raise folder.error(name, f"its header {_brief.repr(header)} is not that of a plain array")
        found, expected = (match[1], match[3]), (dtype.str, str(shape))
        if found != expected:
            raise folder.error(name, f"its header says {' '.join(found)[:80]}, the manifest {' '.join(expected)[:80]}")
        offset = len(start) + len(header)
        needed = offset + math.prod(shape) * dtype.itemsize
        if size != needed:
            raise folder.error(name, f"this file has {size} bytes instead of {needed}, so it is damaged")
        file.seek(0)
        if _sha256(file) != entry["sha256"]:
            raise folder.error(name, "its content does not match its sha256 in the manifest, so it is damaged")
        return np.memmap(file, dtype, "r", offset, shape, "F" if match[2] == "True" else "C")


def _sha256(file: BinaryIO) -> str:
    # Read, not mapped: if another process truncates the file meanwhile, the sum is wrong, but the process survives.
    digest, buffer = hashlib.sha256(), memoryview(bytearray(2**20))
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(buffer[:count])
    return digest.hexdigest()
