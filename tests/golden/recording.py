"""Arrays to and from `record.json`: a digest of every bit, and some values for machines that round in another way."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ripml.base.compiled import loops

__all__ = [
    "RECORD",
    "TOLERANCE",
    "differences",
    "entries_of",
    "fingerprint",
    "machine",
    "one_blas_thread",
    "read",
    "write",
]

RECORD = Path(__file__).with_name("record.json")
TOLERANCE = 1e-4
# A label that ties on one machine and not on another moves a precision by its share of all that were counted.
COUNTED, COUNTED_TOLERANCE = "left_out_precision", 2e-3
# Made by isotonic regression, whose steps jump where two scores all but tie: compared to the last bit or not at all.
STEPPED = ("proba", "calibration_error")
_VALUES = 24  # of an array of numbers that are kept
_ENTRIES = 10  # of a sparse matrix that are kept

Arrays = Mapping[str, NDArray[Any]]
Entries = dict[str, dict[str, Any]]


def one_blas_thread() -> Any:
    """A context in which BLAS has one thread: its sums depend on their number."""
    return threadpool_limits(1, user_api="blas")


def digest(*arrays: NDArray[Any]) -> str:
    """The SHA-256 of types, shapes and values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


# ----------------------------------------------------------------------------------------------------------- machines


def fingerprint() -> str:
    """A digest of products, factors and sums by BLAS, LAPACK and NumPy: of how this machine rounds."""
    found = []
    with one_blas_thread():
        for dtype in (np.float32, np.float64):
            rng = np.random.RandomState(0)
            for n, k, m in ((1, 40, 7), (37, 11, 5), (129, 65, 33), (470, 40, 45), (17, 470, 470)):
                A, B = (rng.randint(-999, 999, size=shape).astype(dtype) / 97 for shape in ((n, k), (k, m)))
                found += [A @ B, A @ A.T, A.T @ A, A @ B[:, 0], np.einsum("ij,ij->i", A, A[:, ::-1])]
                K = A.T @ A + k * np.eye(k, dtype=dtype)
                factor = scipy.linalg.cholesky(K, lower=True)
                found += [factor, scipy.linalg.solve(K, B, assume_a="pos"), np.linalg.solve(K, B)]
                found += [scipy.linalg.solve_triangular(factor, B, lower=True), np.linalg.eigvalsh(K)]
                found += [np.exp(-np.abs(A)), np.log1p(np.abs(A)), A.sum(axis=0), A.mean(axis=1)]
    return digest(*found)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def machine() -> dict[str, Any]:
    """How this machine rounds, and the packages whose versions may change a bit."""
    versions = {name: _version(name) for name in ("numpy", "scipy", "scikit-learn", "faiss-cpu", "numba")}
    return {"fingerprint": fingerprint(), "compiled_for": _compiled_for(), "versions": versions}


def _compiled_for() -> str:
    """The processor that loops are compiled for: the order of their sums depends on the width of its registers."""
    if loops() is None:
        return "none"
    import llvmlite.binding

    return str(llvmlite.binding.get_host_cpu_name())


# ------------------------------------------------------------------------------------------------------------ entries


def _spread(size: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, most)).astype(np.int64))


def _matrix_parts(name: str, arrays: Arrays) -> list[NDArray[Any]]:
    return [arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr", "shape")]


def entries_of(arrays: Arrays) -> Entries:
    """What is recorded of named arrays; the arrays of a sparse matrix are recorded together."""
    found: Entries = {}
    for full_name, array in arrays.items():
        name, _, part = full_name.rpartition(".")
        if f"{name}.indptr" in arrays and part in ("data", "indices", "indptr", "shape"):
            if part == "data":
                data, indices, indptr, shape = _matrix_parts(name, arrays)
                there = np.flatnonzero(data)
                places = there[_spread(len(there), _ENTRIES)]
                rows = np.searchsorted(indptr, places, side="right") - 1
                kept = zip(rows.tolist(), indices[places].tolist(), data[places].tolist(), strict=True)
                found[name] = {
                    "sha256": digest(data, indices, indptr, shape),
                    "matrix": shape.tolist(),
                    "entries": [list(entry) for entry in kept],
                }
            continue
        values = array.ravel()[_spread(array.size, _VALUES)].tolist()
        found[full_name] = {"sha256": digest(array), "shape": list(array.shape), "values": values}
    return found


def differences(recorded: Entries, arrays: Arrays, exact: bool) -> list[str]:
    """A sentence for each array that is not as recorded: to the last bit if `exact`, else within a tolerance."""
    found = []
    now = entries_of(arrays)
    for name in sorted({*recorded, *now}):
        if name not in now or name not in recorded:
            found.append(f"{name}: {'is missing' if name not in now else 'was not recorded'}")
        elif now[name]["sha256"] != recorded[name]["sha256"]:
            off = _off(name, recorded[name], now[name], arrays)
            if isinstance(off, str):
                found.append(f"{name}: {off}")
            elif exact or (off > _tolerance(name) and name not in STEPPED):
                found.append(f"{name}: sampled values differ by up to {off:.3g}")
    return found


def _tolerance(name: str) -> float:
    return COUNTED_TOLERANCE if name.startswith(COUNTED) else TOLERANCE


def _off(name: str, old: dict[str, Any], new: dict[str, Any], arrays: Arrays) -> float | str:
    """The largest difference of sampled values, or what else differs."""
    if "matrix" in old:
        if old["matrix"] != new.get("matrix"):
            return f"the shape is {new.get('matrix')} and was {old['matrix']}"
        data, indices, indptr, _ = _matrix_parts(name, arrays)
        largest = 0.0
        for row, column, value in old["entries"]:
            own = slice(indptr[row], indptr[row + 1])
            largest = max(largest, abs(float(data[own][indices[own] == column].sum()) - value))
        return largest
    if old["shape"] != new.get("shape"):
        return f"the shape is {new.get('shape')} and was {old['shape']}"
    off = 0.0
    for value, other in zip(old["values"], new["values"], strict=True):
        if isinstance(value, float) and isinstance(other, float):
            same = value == other or (np.isnan(value) and np.isnan(other))
            off = max(off, 0.0 if same else abs(value - other) / max(1.0, abs(value)))
        elif value != other:
            return f"{other!r} was {value!r}"
    return off


# --------------------------------------------------------------------------------------------------------------- files


def write(path: Path, cases: Mapping[str, Entries], made_by: dict[str, Any]) -> None:
    """Write a record, a line for each array, so that changes of it can be read."""
    blocks = []
    for case, entries in cases.items():
        lines = [f"   {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
        blocks.append(f"  {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n  }")
    cases_text = ",\n".join(blocks)
    path.write_text(f'{{\n "machine": {json.dumps(made_by)},\n "cases": {{\n{cases_text}\n }}\n}}\n', encoding="utf-8")


def read(path: Path = RECORD) -> dict[str, Any]:
    """Read a record."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
