"""The parts of a model ⇄ plain arrays: what a model folder holds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.workspace import row_slice
from ripml.model.part import KeptRows, Part
from ripml.neighbors import Index
from ripml.regression import PackedSums, Sums
from ripml.regression.kernels import Kernel, Linear, Rows

__all__ = ["parts_from_arrays", "parts_to_arrays"]

Ints = NDArray[np.int64]


def _end_to_end(pieces: Sequence[NDArray[Any]], axis: int = 0) -> NDArray[Any]:
    """The pieces joined; where they are those of one array, that array itself."""
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    whole: Any = pieces[0]
    while isinstance(whole, np.ndarray) and list(whole.shape) != shape:
        whole = whole.base
    if isinstance(whole, np.ndarray) and all(np.may_share_memory(whole, piece) for piece in pieces):
        return whole
    return np.concatenate(pieces, axis=axis)


def parts_to_arrays(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """The parts of a model end to end, with `part_ends` marking where the label sets of each part end.

    Psi is (C, d, M) for a linear kernel, else the coefficients of all rows, (n, M); Z is (F, u, m); rows are sparse or
    dense.
    """
    linear = isinstance(parts[0].kernel, Linear)
    arrays = {
        "Psi": (np.stack if linear else np.concatenate)([part.Psi for part in parts]),
        "intercept": np.stack([part.intercept for part in parts]),
        "Z": _end_to_end([part.Z for part in parts], axis=1),
        **({"scale": np.array([parts[0].scale])} if parts[0].scale != 1 else {}),
        "counts": _end_to_end([part.counts for part in parts]),
        "part_ends": np.cumsum([part.n_sets for part in parts], dtype=np.int64),
        "sets_indices": _end_to_end([part.sets.indices for part in parts]),
        "sets_indptr": np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.sets.indptr) for part in parts]))]),
    }
    for c, part in enumerate(parts):
        for f, searcher in enumerate(part.built_searchers):
            arrays |= {f"index_{c}_{f}_{name}": array for name, array in searcher.arrays().items()}
    arrays |= _kept_to_arrays(parts)
    if parts[0].rows is None:
        return arrays
    arrays["row_numbers"] = np.concatenate([part.row_numbers for part in parts])
    arrays["set_of_row"] = np.concatenate([part.set_of_row for part in parts])
    arrays["row_ends"] = np.cumsum([len(part.set_of_row) for part in parts], dtype=np.int64)
    return arrays | _rows_to_arrays("rows", [part.rows.all() for part in parts if part.rows is not None])


def _rows_to_arrays(name: str, rows: Sequence[Any]) -> dict[str, NDArray[Any]]:
    if not scipy.sparse.issparse(rows[0]):
        return {name: np.concatenate(rows)}
    sparse = scipy.sparse.vstack(rows, format="csr")
    return {f"{name}_data": sparse.data, f"{name}_indices": sparse.indices, f"{name}_indptr": sparse.indptr}


def _kept_to_arrays(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """What parts without stored rows can learn on from: sums of `summed` parts, of XᵀX its lower triangle, and rows."""
    arrays: dict[str, NDArray[Any]] = {}
    packed = [(c, PackedSums.of(p.kept) if isinstance(p.kept, Sums) else p.kept) for c, p in enumerate(parts)]
    sums = [(c, of) for c, of in packed if isinstance(of, PackedSums)]
    if sums:
        arrays["summed"] = np.array([(c, of.n_rows) for c, of in sums], np.int64)
        arrays["gram"] = np.stack([of.triangle for _, of in sums])
        arrays["moment"] = np.stack([of.moment for _, of in sums])
        if any(of.added_up is not None for _, of in sums):
            nothing = np.zeros(arrays["moment"].shape[1])
            arrays["added_up"] = np.stack([nothing if of.added_up is None else of.added_up for _, of in sums])
    rows = [(c, part.kept) for c, part in enumerate(parts) if isinstance(part.kept, KeptRows)]
    if rows:
        arrays["kept_parts"] = np.array([(c, len(of.set_of_row)) for c, of in rows], np.int64)
        arrays["kept_set_of_row"] = np.concatenate([of.set_of_row for _, of in rows])
        arrays |= _rows_to_arrays("kept", [of.X for _, of in rows])
    return arrays


def _with_kept(parts: list[Part], arrays: Mapping[str, NDArray[Any]], n_features: int) -> list[Part]:
    """The parts with what `_kept_to_arrays` made arrays of."""
    if "summed" in arrays:
        summed, gram, moment = _whole_numbers(arrays, "summed"), arrays["gram"], arrays["moment"]
        d = moment.shape[1] if moment.ndim == 3 else -1
        added_up = arrays.get("added_up", np.zeros((len(summed), max(d, 0))))
        consistent = (
            summed.ndim == 2
            and summed.shape[1] == 2
            and gram.dtype == moment.dtype == np.float64
            and d in (n_features, n_features + 1)
            and gram.shape == (len(summed), d * (d + 1) // 2)
            and added_up.shape == (len(summed), d)
            and added_up.dtype == np.float64
            and bool((added_up >= 0).all())
            and moment.shape[::2] == (len(summed), parts[0].Psi.shape[1])
            and len(set(summed[:, 0].tolist())) == len(summed)
            and ((summed[:, 0] >= 0) & (summed[:, 0] < len(parts)) & (summed[:, 1] >= 0)).all()
        )
        if not consistent:
            raise ValueError("the sums do not fit")
        for (c, n_rows), *of_part in zip(summed.tolist(), gram, moment, added_up, strict=True):
            triangle, moments, ever = of_part
            parts[c] = replace(parts[c], kept=PackedSums(triangle, moments, n_rows, ever))
    if "kept_parts" in arrays:
        kept, of_row = _whole_numbers(arrays, "kept_parts"), _whole_numbers(arrays, "kept_set_of_row")
        if kept.ndim != 2 or kept.shape[1] != 2 or (kept < 0).any() or kept[:, 1].sum() != len(of_row):
            raise ValueError("the rows that were kept do not fit")
        shape = (len(of_row), n_features)
        rows = arrays["kept"] if "kept" in arrays else _csr(arrays, "kept", arrays["kept_data"], shape)
        if rows.shape != shape or rows.dtype.kind != "f":
            raise ValueError("the rows that were kept do not fit")
        ends = np.cumsum([0, *kept[:, 1]])
        for (c, _), start, end in zip(kept.tolist(), ends[:-1], ends[1:], strict=True):
            of = of_row[start:end]
            if c >= len(parts) or (len(of) and (of.min() < 0 or of.max() >= len(parts[c].counts))):
                raise ValueError("a row has a label set that is not there")
            parts[c] = replace(parts[c], kept=KeptRows(rows[start:end], of))
    return parts


def parts_from_arrays(
    arrays: Mapping[str, NDArray[Any]], n_labels: int, n_features: int, index: Index, n_learners: int, kernel: Kernel
) -> list[Part]:
    """The inverse of `parts_to_arrays`; large arrays are not copied. Arrays that contradict each other: ValueError."""
    Psi, intercept, Z = arrays["Psi"], arrays["intercept"], arrays["Z"]
    scale = arrays.get("scale", np.ones(1))
    if Z.ndim == 2:  # of older models: the learners side by side
        Z = Z.reshape(len(Z), n_learners, -1).transpose(1, 0, 2)
    linear = isinstance(kernel, Linear)
    counts, ends = _whole_numbers(arrays, "counts"), _whole_numbers(arrays, "part_ends")
    consistent = (
        Psi.dtype.kind == intercept.dtype.kind == "f"
        and Z.dtype.name == index.storage
        and scale.shape == (1,)
        and scale.dtype == np.float64
        and 0 < scale[0] < np.inf
        and Psi.ndim == (3 if linear else 2)
        and ends.ndim == 1
        and len(ends) > 0
        and (not linear or ends.shape == (len(Psi),))
        and (np.diff(ends, prepend=0) >= 0).all()
        and Z.ndim == 3
        and len(Z) in (1, n_learners)
        and Z.shape[1] == ends[-1]
        and intercept.shape == (len(ends), Psi.shape[-1])
        and counts.shape == (Z.shape[1],)
        and (counts > 0).all()
    )
    if not consistent:
        raise ValueError("shapes or ranges of the arrays disagree")
    sets = _csr(arrays, "sets", np.ones(len(arrays["sets_indices"]), np.float32), (Z.shape[1], n_labels))
    bounds = [slice(start, end) for start, end in pairwise([0, *ends.tolist()])]
    parts = [
        Part(
            Psi=Psi[c] if linear else Psi,
            intercept=intercept[c],
            Z=Z[:, b],
            sets=row_slice(sets, b),
            counts=counts[b],
            index=index,
            n_learners=n_learners,
            kernel=kernel,
            scale=float(scale[0]),
            index_arrays=_index_arrays(arrays, c, len(Z)),
        )
        for c, b in enumerate(bounds)
    ]
    if "set_of_row" not in arrays:
        if not linear:
            raise ValueError("a kernel needs its rows")
        return _with_kept(parts, arrays, n_features)
    set_of_row, row_ends = _whole_numbers(arrays, "set_of_row"), _whole_numbers(arrays, "row_ends")
    n = len(set_of_row)
    if not (row_ends.shape == ends.shape and (np.diff(row_ends, prepend=0) >= 0).all() and row_ends[-1] == n):
        raise ValueError("the ends of the rows disagree")
    rows = arrays["rows"] if "rows" in arrays else _csr(arrays, "rows", arrays["rows_data"], (n, n_features))
    if rows.shape != (n, n_features) or rows.dtype != np.float32 or (not linear and len(Psi) != n):
        raise ValueError("the rows do not fit")
    numbers = _whole_numbers(arrays, "row_numbers") if "row_numbers" in arrays else np.arange(n)
    if numbers.shape != (n,) or len(np.unique(numbers)) != n:
        raise ValueError("the numbers of the rows do not fit")
    with_rows = []
    for part, start, end in zip(parts, [0, *row_ends[:-1]], row_ends, strict=True):
        of = set_of_row[start:end]
        if len(of) and (of.min() < 0 or of.max() >= part.n_sets):
            raise ValueError("a row has a label set that is not there")
        coefficients = part.Psi if linear else Psi[start:end]
        own = numbers[start:end]
        with_rows.append(replace(part, Psi=coefficients, rows=Rows(rows[start:end]), set_of_row=of, row_numbers=own))
    return _with_kept(with_rows, arrays, n_features)


def _index_arrays(arrays: Mapping[str, NDArray[Any]], cluster: int, n_learners: int) -> list[dict[str, NDArray[Any]]]:
    of_learners = []
    for f in range(n_learners):
        start = f"index_{cluster}_{f}_"
        of_learners.append({name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)})
    if any("numbers" in of_learner for of_learner in of_learners):
        raise ValueError("the rows of a model's index are numbered from 0")
    return of_learners if any(of_learners) else []


def _whole_numbers(arrays: Mapping[str, NDArray[Any]], name: str) -> Ints:
    return arrays[name].astype(np.int64, casting="safe")


def _csr(arrays: Mapping[str, NDArray[Any]], name: str, data: NDArray[Any], shape: tuple[int, int]) -> Any:
    """A CSR matrix from `{name}_indices` and `{name}_indptr`, checked: a wrong index would read past an array."""
    indices, indptr = _whole_numbers(arrays, f"{name}_indices"), _whole_numbers(arrays, f"{name}_indptr")
    consistent = (
        indptr.shape == (shape[0] + 1,)
        and indptr[0] == 0
        and (np.diff(indptr) >= 0).all()
        and indices.shape == data.shape == (int(indptr[-1]),)
        and ((indices >= 0) & (indices < shape[1])).all()
    )
    if not consistent:
        raise ValueError("shapes or ranges of the arrays disagree")
    return scipy.sparse.csr_array((data, indices, indptr), shape=shape)
