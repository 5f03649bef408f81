"""The hot loops of training and answering, compiled by Numba. `ripml.base.compiled.loops` imports it where it can.

Each loop treats the rows of a block one by one, so that a row has the same result alone and in a batch, on any number
of threads. All release the interpreter lock. The NumPy form of a loop is named in its docstring; tests/test_loops.py
compares the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Sums may be reordered so that they are vectorised; infinities and NaN keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz", "arcp"}


def _compiled(fastmath: Any) -> Any:
    def compile_loop(loop: Any) -> Any:
        try:
            return njit(nogil=True, cache=True, fastmath=fastmath, error_model="numpy")(loop)
        except RuntimeError:  # no folder to keep it in
            return njit(nogil=True, fastmath=fastmath, error_model="numpy")(loop)

    return compile_loop


_loop = _compiled(_REORDERED)
_ordered_loop = _compiled(False)


@intrinsic
def _as_single(typing: Any, value: Any) -> Any:
    """float32 of a float32, or of the bits of a float16; the processor has an instruction for that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if value == types.float32:
            return arguments[0]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(value), generate


@intrinsic
def _to_half(typing: Any, value: Any) -> Any:
    """The bits of the float16 nearest to a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def _count_ones(typing: Any, word: Any) -> Any:
    """The number of ones among 64 bits; the processor has an instruction for that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


# ------------------------------------------------------------------------------------------------------------- features


@_loop
def sparse_products(indptr, indices, data, starts, rows, values, place, frequent, out):
    """⟨x, row⟩ of CSR rows x with the first rows of all, as many as `out` has columns (`Rows.products`).

    `starts`, `rows` and `values` list the rows that have each feature, in order; a feature that many rows have is line
    `place[feature]` of the matrix `frequent`.
    """
    n = out.shape[1]
    for i in range(len(indptr) - 1):
        line = out[i]
        line[:] = 0
        for t in range(indptr[i], indptr[i + 1]):
            feature, value = indices[t], data[t]
            if place[feature] >= 0:
                column = frequent[place[feature]]
                for r in range(n):
                    line[r] += value * column[r]
            else:
                for e in range(starts[feature], starts[feature + 1]):
                    if rows[e] >= n:
                        break
                    line[rows[e]] += value * values[e]


@_ordered_loop
def sparse_dense(indptr, indices, data, matrix, out):
    """CSR rows times a matrix (`ripml.base.products.predict_embedding`)."""
    for i in range(len(indptr) - 1):
        line = out[i]
        line[:] = 0
        for t in range(indptr[i], indptr[i + 1]):
            row, value = matrix[indices[t]], data[t]
            for j in range(len(line)):
                line[j] += value * row[j]


@_ordered_loop
def squared_lengths(indptr, data, out):
    """‖x‖² of CSR rows (`ripml.regression.kernels.squared_lengths`)."""
    for i in range(len(out)):
        total = 0.0
        for t in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[t]) * np.float64(data[t])
        out[i] = total


@_loop
def dense_rows(rows, matrix, out):
    """Dense rows times a matrix, four of its rows at a time (`ripml.base.products.dense_rows_product`)."""
    m = rows.shape[1]
    for i in range(len(rows)):
        line, row = out[i], rows[i]
        line[:] = 0
        for t in range(0, m - m % 4, 4):
            a, b, c, d = matrix[t], matrix[t + 1], matrix[t + 2], matrix[t + 3]
            for j in range(len(line)):
                line[j] += (row[t] * a[j] + row[t + 1] * b[j]) + (row[t + 2] * c[j] + row[t + 3] * d[j])
        for t in range(m - m % 4, m):
            for j in range(len(line)):
                line[j] += row[t] * matrix[t, j]


@_loop
def sparse_half(indptr, indices, data, matrix, out):
    """CSR rows times a matrix of float16 bits (`ripml.base.products.sparse_half_product`)."""
    for i in range(len(indptr) - 1):
        line = out[i]
        line[:] = 0
        entries = slice(indptr[i], indptr[i + 1])
        _add_half_rows(indices[entries], data[entries], matrix, line)


@_loop
def to_half(values, factor, out):
    """float16 bits of an array (n, M) times a factor (`ripml.regression.far_field.as_half`)."""
    for i in range(len(values)):
        for j in range(values.shape[1]):
            out[i, j] = _to_half(np.float32(values[i, j] * factor))


# ----------------------------------------------------------------------------------------------------------- neighbours


@_loop
def _order(keys):
    """The places of keys in ascending order, ties in the order of places; Shell's sort, which compiles quickly."""
    places = np.arange(len(keys))
    gap = 1
    while gap < len(keys) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(keys)):
            place, j = places[i], i
            while j >= gap:
                other = places[j - gap]
                if keys[other] < keys[place] or (keys[other] == keys[place] and other < place):
                    break
                places[j] = other
                j -= gap
            places[j] = place
        gap //= 3
    return places


@_loop
def _sift(heap, place, value):
    """Put a value at a place of a min-heap whose part below the place is in order."""
    size = len(heap)
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@_loop
def _kth_largest(values, k):
    """The k-th largest of values (n,), 1 ≤ k ≤ n."""
    heap = values[:k].copy()
    for place in range(k // 2 - 1, -1, -1):
        _sift(heap, place, heap[place])
    for i in range(k, len(values)):
        if values[i] > heap[0]:
            _sift(heap, 0, values[i])
    return heap[0]


@_loop
def most_similar(likeness, numbers, k, tied, ids, values):
    """The k rows of the largest likeness, the largest first; among equals those of the lowest numbers
    (`TrainingRows.most_similar`)."""
    n = likeness.shape[1]
    order, found = np.empty(n, np.int64), np.empty(k, np.int64)
    for i in range(len(likeness)):
        line = likeness[i]
        least = _kth_largest(line, k)
        sure, maybe = 0, n
        for j in range(n):
            if line[j] > least + tied:
                order[sure] = j
                sure += 1
            elif line[j] >= least - tied:
                maybe -= 1
                order[maybe] = j
        equal = order[maybe:]
        earliest = _order(numbers[equal])
        for e in range(k - sure):
            found[sure + e] = equal[earliest[e]]
        for e in range(sure):
            found[e] = order[e]
        best = _order(-line[found])
        for e in range(k):
            ids[i, e] = found[best[e]]
            values[i, e] = line[found[best[e]]]


@_ordered_loop
def _squared_distance(row, query):
    """‖row − query‖² in float64, added up in the same order wherever it is called."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = len(query) // 4 * 4
    for j in range(0, whole, 4):
        d0 = np.float64(row[j]) - np.float64(query[j])
        d1 = np.float64(row[j + 1]) - np.float64(query[j + 1])
        d2 = np.float64(row[j + 2]) - np.float64(query[j + 2])
        d3 = np.float64(row[j + 3]) - np.float64(query[j + 3])
        s0, s1, s2, s3 = s0 + d0 * d0, s1 + d1 * d1, s2 + d2 * d2, s3 + d3 * d3
    for j in range(whole, len(query)):
        d0 = np.float64(row[j]) - np.float64(query[j])
        s0 += d0 * d0
    return (s0 + s1) + (s2 + s3)


@_ordered_loop
def squared_distances(Z, queries, row_of, query_of, out):
    """Squared distances of pairs of rows and queries (`ExactSearcher.distances`)."""
    for p in range(len(out)):
        out[p] = _squared_distance(Z[row_of[p]], queries[query_of[p]])


@_loop
def best_rows(queries, Z, penalty, rounded, units, cut, longest, by_distance, k, ids, costs):
    """The k rows of Z (n, m) with the largest ⟨z, q⟩ − penalty, ties to the lower number (`RoundedRows.best`).

    Products are first computed from rows z' and query q' rounded to 8 bits, in `units`. That moves them by at most
    |q − q'| max|z| + |q'| max|z − z'|, where `cut` is the last maximum and `longest` the first one, so that all rows
    within twice that of the k-th best are compared exactly: by their squared distance, if `by_distance`, or by the
    product, whose negative is the cost.
    """
    n, m = Z.shape
    scores = np.empty(n)
    steps = np.empty(m, np.int16)
    for i in range(len(queries)):
        query = queries[i]
        largest = np.float32(0)
        for j in range(m):
            largest = max(largest, abs(query[j]))
        unit = largest / np.float32(127) + np.float32(1e-30)
        off, length = 0.0, 0.0
        for j in range(m):
            steps[j] = np.int16(np.rint(query[j] / unit))
            apart = query[j] - np.float32(steps[j]) * unit
            off += apart * apart
            length += query[j] * query[j]
        off, length = np.sqrt(off), np.sqrt(length)
        for r in range(n):
            row, total = rounded[r], np.int32(0)
            for j in range(m):
                total = np.int32(total + np.int32(np.int32(row[j]) * np.int32(steps[j])))
            scores[r] = np.float64(total) * np.float64(unit) * np.float64(units[r]) - penalty[r]
        margin = off * longest + (length + off) * cut
        least = _kth_largest(scores, k) - 2 * margin - 1e-6 * (length + longest) * longest
        places = np.flatnonzero(scores >= least)
        exact = np.empty(len(places))
        for p in range(len(places)):
            row_of = Z[places[p]]
            if by_distance:
                exact[p] = _squared_distance(row_of, query)
            else:
                exact[p] = penalty[places[p]]
                for j in range(m):
                    exact[p] -= np.float64(row_of[j]) * np.float64(query[j])
        first = _order(exact)
        for p in range(k):
            ids[i, p], costs[i, p] = places[first[p]], exact[first[p]]


@_ordered_loop
def _turned(row, flips, out):
    """A row, filled up with zeros, in other axes: twice signs ±1 (2, D) and a Walsh–Hadamard transform."""
    n_bits = len(out)
    out[:] = 0
    for j in range(len(row)):
        out[j] = np.float32(row[j])
    for flip in flips:
        for j in range(n_bits):
            out[j] *= flip[j]
        half = 1
        while half < n_bits:
            for start in range(0, n_bits, 2 * half):
                for j in range(start, start + half):
                    out[j], out[j + half] = out[j] + out[j + half], out[j] - out[j + half]
            half *= 2
    for j in range(n_bits):
        out[j] /= np.float32(n_bits)


@_ordered_loop
def bit_codes(Z, flips, signs, both, factors):
    """Two bits for each entry of turned rows: its sign, and whether it is the larger of two steps upwards
    (`ripml.base.products.BitCodes`). `signs` are in blocks of 64 rows. `factors` turn products with bits into products
    with the rows."""
    turned, one = np.empty(flips.shape[1], np.float32), np.uint64(1)
    for r in range(len(Z)):
        _turned(Z[r], flips, turned)
        square, total, coarse = 0.0, 0.0, 0.0
        for value in turned:
            square += np.float64(value) * np.float64(value)
        step = np.sqrt(square / len(turned))  # between the values 1 and 3 of normal entries
        block, place = r // 64, r % 64
        for w in range(signs.shape[1]):
            sign, large = np.uint64(0), np.uint64(0)
            for j in range(64):
                value = turned[64 * w + j]
                far = abs(value) > step
                total += abs(value)
                coarse += abs(value) * (3 if far else 1)
                if value >= 0:
                    sign |= one << np.uint64(j)
                if (value >= 0) == far:
                    large |= one << np.uint64(j)
            signs[block, w, place] = sign
            both[block, place, 0, w], both[block, place, 1, w] = sign, large
        factors[block, 0, place] = square / total if total > 0 else 0.0
        factors[block, 1, place] = square / coarse if total > 0 else 0.0


@_ordered_loop
def _bit_planes(turned, planes):
    """Entries as ±u ± 2u ± 4u: the bits (3, W) of the signs, and u. The largest entries are cut off at 7u."""
    largest = np.float32(0)
    for value in turned:
        largest = max(largest, abs(value))
    unit = largest * np.float32(0.1) + np.float32(1e-30)
    planes[:] = 0
    for j in range(len(turned)):
        steps = np.int64(min(max(np.rint((turned[j] / unit + np.float32(7)) / np.float32(2)), 0), 7))
        for p in range(3):
            planes[p, j // 64] |= np.uint64((steps >> p) & 1) << np.uint64(j % 64)
    return unit


@_loop
def _reach(values, k):
    """The k-th largest of values (n,); −∞ where there are fewer."""
    if k > len(values):
        return np.float32(-np.inf)
    return np.partition(values, len(values) - k)[len(values) - k]


@_loop
def _likely_by_bits(
    signs, both, factors, last_signs, last_both, last_factors, planes, unit, halves, gone, own, n_first, n_kept, scores,
    highest, places, refined
):  # fmt: skip
    """The places of about `n_kept` rows that are likely to have the largest ⟨z, q⟩ − half, and how many these are.

    The signs of all rows propose `n_first` rows, both bits of these the others. (b XOR p) counts the entries in which
    row and query differ in sign, of which a product of signs loses 2. The block behind the full ones is apart.
    """
    n, n_words, group = len(halves), signs.shape[1], 16
    whole, counts, line = np.float32(7 * 64 * n_words), np.empty(64, np.uint64), np.empty(64, np.float32)
    for block in range(-(-n // 64)):
        for i in range(64):
            counts[i] = 0
        for w in range(n_words):
            bits = signs[block, w] if block < len(signs) else last_signs[block - len(signs), w]
            one, two, four = planes[0, w], planes[1, w], planes[2, w]
            for i in range(64):
                counts[i] += (
                    _count_ones(bits[i] ^ one)
                    + (_count_ones(bits[i] ^ two) << np.uint64(1))
                    + (_count_ones(bits[i] ^ four) << np.uint64(2))
                )
        factor = factors[block, 0] if block < len(signs) else last_factors[block - len(signs), 0]
        half = halves[64 * block : 64 * block + 64]
        for i in range(64):
            line[i] = (whole - np.float32(2) * np.float32(np.int32(counts[i]))) * unit * factor[i]
        for i in range(len(half)):
            line[i] -= np.float32(half[i])
        line[len(half) :] = -np.inf
        if len(gone):
            for i in range(len(half)):
                line[i] = -np.inf if gone[64 * block + i] else line[i]
        if own // 64 == block:
            line[own % 64] = -np.inf
        scores[block] = line
        for g in range(64 // group):
            best = np.float32(-np.inf)
            for i in range(group * g, group * g + group):
                best = max(best, line[i])
            highest[block, g] = best
    # The `n_first` largest maxima of groups bound the `n_first` largest scores.
    tops, flat = highest.ravel(), scores.ravel()
    least, count = _reach(tops, n_first), 0
    for g in range(len(tops)):
        if tops[g] >= least:
            for r in range(group * g, group * g + group):
                places[count] = r
                count += 1 if flat[r] >= least and flat[r] > -np.inf else 0
    if count > n_first:
        for p in range(count):
            refined[p] = flat[places[p]]
        least, found, count = _reach(refined[:count], n_first), count, 0
        for p in range(found):
            places[count] = places[p]
            count += 1 if refined[p] >= least else 0
    if count <= n_kept:
        return count
    for p in range(count):
        row = places[p]
        block, i, lost = row // 64, row % 64, np.uint64(0)
        bits = both[block, i] if block < len(signs) else last_both[block - len(signs), i]
        factor = factors[block, 1, i] if block < len(signs) else last_factors[block - len(signs), 1, i]
        sign, large = bits[0], bits[1]
        for w in range(n_words):
            one, two, four = planes[0, w], planes[1, w], planes[2, w]
            lost += (
                (_count_ones(sign[w] ^ one) << np.uint64(1))
                + (_count_ones(sign[w] ^ two) << np.uint64(2))
                + (_count_ones(sign[w] ^ four) << np.uint64(3))
                + _count_ones(large[w] ^ one)
                + (_count_ones(large[w] ^ two) << np.uint64(1))
                + (_count_ones(large[w] ^ four) << np.uint64(2))
            )
        product = np.float32(3) * whole - np.float32(2) * np.float32(np.int32(lost))
        refined[p] = product * unit * factor - np.float32(halves[row])
    least, found, count = _reach(refined[:count], n_kept), count, 0
    for p in range(found):
        places[count] = places[p]
        count += 1 if refined[p] >= least else 0
    return count


@_loop
def nearest_by_bits(
    queries, Z, half_norms, flips, signs, both, factors, last_signs, last_both, last_factors, n_first, n_kept, k, ids,
    distances
):  # fmt: skip
    """The k nearest of the rows Z that bits propose, and their squared distances (`ripml.neighbors.bits`).

    Half the squared length of a removed row is ∞.
    """
    n_bits, n_blocks = flips.shape[1], len(signs) + len(last_signs)
    turned, planes = np.empty(n_bits, np.float32), np.empty((3, n_bits // 64), np.uint64)
    scores, highest = np.empty((n_blocks, 64), np.float32), np.empty((n_blocks, 4), np.float32)
    places, refined = np.empty(64 * n_blocks + 1, np.int64), np.empty(64 * n_blocks, np.float32)
    gone = np.empty(0, np.bool_)
    for i in range(len(queries)):
        _turned(queries[i], flips, turned)
        unit = _bit_planes(turned, planes)
        count = _likely_by_bits(
            signs, both, factors, last_signs, last_both, last_factors, planes, unit, half_norms, gone, -1, n_first,
            n_kept, scores, highest, places, refined
        )  # fmt: skip
        exact = np.empty(count)
        for p in range(count):
            exact[p] = _squared_distance(Z[places[p]], queries[i])
        first = _order(exact)
        for p in range(k):
            ids[i, p], distances[i, p] = places[first[p]], exact[first[p]]


@_loop
def similar_by_bits(
    queries, Z, halves, flips, signs, both, factors, last_signs, last_both, last_factors, gone, left_out, late, numbers,
    n_first, n_kept, k, tied, ids, found
):  # fmt: skip
    """The k nearest of the dense rows that bits propose (`TrainingRows.nearest`). The other arguments are those of
    `nearest_rows`. Where fewer than k rows count, others follow."""
    n, n_bits, n_blocks, n_late = len(halves), flips.shape[1], len(signs) + len(last_signs), late.shape[1]
    turned, planes = np.empty(n_bits, np.float32), np.empty((3, n_bits // 64), np.uint64)
    scores, highest = np.empty((n_blocks, 64), np.float32), np.empty((n_blocks, 4), np.float32)
    places, refined = np.empty(64 * n_blocks + 1, np.int64), np.empty(64 * n_blocks, np.float32)
    best_ids, best = np.empty((1, k), np.int64), np.empty((1, k), np.float32)
    for i in range(len(queries)):
        _turned(queries[i], flips, turned)
        unit = _bit_planes(turned, planes)
        own = left_out[i] if len(left_out) else -1
        count = _likely_by_bits(
            signs, both, factors, last_signs, last_both, last_factors, planes, unit, halves, gone[:n],
            own if own < n else -1, n_first, n_kept, scores, highest, places, refined
        )  # fmt: skip
        near, likeness = np.empty(max(count, k) + n_late, np.int64), np.empty(max(count, k) + n_late, np.float32)
        for p in range(count):
            near[p], likeness[p] = places[p], _dot(queries[i], Z[places[p]]) - halves[places[p]]
        if count < k:  # all rows that count are among these
            listed = np.zeros(n, np.bool_)
            for p in range(count):
                listed[places[p]] = True
            for r in range(n):
                if count < k and not listed[r]:
                    near[count], likeness[count] = r, -np.inf
                    count += 1
        for e in range(n_late):
            near[count] = n + e
            likeness[count] = -np.inf if own == n + e or (len(gone) and gone[n + e]) else late[i, e]
            count += 1
        most_similar(likeness[:count].reshape(1, count), numbers[near[:count]], k, tied, best_ids, best)
        for p in range(k):
            ids[i, p], found[i, p] = near[best_ids[0, p]], best[0, p]


@_loop
def near_sum(likeness, squares, grade, n_near, width, coefficients, total, moment, linear, out):
    """Σ_i K(x, x_i) C_i with the kernel of distant rows as a line (`FarField.kernel_sum`)."""
    n = likeness.shape[1]
    n_bins = 1024
    counts, bins = np.empty(n_bins, np.int32), np.empty(n, np.int32)
    near, weights = np.empty(n + 1, np.int64), np.empty(n, np.float32)
    for i in range(len(likeness)):
        line = likeness[i]
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for r in range(n):
            high = max(high, line[r])
            low = min(low, line[r] if line[r] > -np.inf else np.float32(np.inf))
        # The likeness that n_near rows exceed, found in a histogram; rows that do not count are in its lowest bin.
        step = max(np.float32((high - low) / n_bins), np.float32(1e-30))
        per_step = np.float32(1) / step
        for r in range(n):
            bins[r] = np.int32(min(max((line[r] - low) * per_step, np.float32(0)), np.float32(n_bins - 1)))
        counts[:] = 0
        for r in range(n):
            counts[bins[r]] += 1
        above, place = 0, n_bins
        while place > 0 and above + counts[place - 1] <= n_near:
            place -= 1
            above += counts[place]
        cut = low + step * place
        if place > 0:
            cut -= step * np.float32(n_near - above) / np.float32(counts[place - 1])
        # The near rows, and the moments of the likeness of distant ones around `low`; without branches.
        count, n_far, first, second, third = 0, 0, 0.0, 0.0, 0.0
        for r in range(n):
            far = line[r] > -np.inf and line[r] <= cut
            apart = np.float64(line[r]) - low if far else 0.0
            n_far += 1 if far else 0
            first += apart
            second += apart * apart
            third += apart * apart * apart
        for r in range(n):
            near[count] = r
            count += 1 if line[r] > cut else 0
        first, second, third = first / max(n_far, 1), second / max(n_far, 1), third / max(n_far, 1)
        mean = low + first
        third = third - 3 * first * second + 2 * first * first * first  # around the mean
        second -= first * first
        level = np.exp(grade * (mean - squares[i] / 2))
        slope = level * (grade + (grade * grade / 2 * third / second if second > 1e-12 else 0.0))
        start = level * (1 + grade * grade / 2 * second) - slope * mean
        # What the line misses of near rows; at the cut it is taken in gradually.
        for c in range(count):
            likely = line[near[c]]
            value = np.exp(np.float32(min(grade * (likely - squares[i] / 2), 0.0)))
            weights[c] = (value - start - slope * likely) * min(1.0, (likely - cut) / width)
        result = out[i]
        for j in range(len(result)):
            result[j] = start * total[j] + slope * (linear[i, j] - moment[j])
        _add_half_rows(near[:count], weights[:count], coefficients, result)


@_loop
def _add_half_rows(rows, weights, matrix, out):
    """Add the sum of these rows of a matrix of float16 bits, with these weights; eight rows at a time."""
    r = 0
    while r + 8 <= len(rows):
        c0, c1, c2, c3 = matrix[rows[r]], matrix[rows[r + 1]], matrix[rows[r + 2]], matrix[rows[r + 3]]
        c4, c5, c6, c7 = matrix[rows[r + 4]], matrix[rows[r + 5]], matrix[rows[r + 6]], matrix[rows[r + 7]]
        w0, w1, w2, w3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
        w4, w5, w6, w7 = weights[r + 4], weights[r + 5], weights[r + 6], weights[r + 7]
        for j in range(len(out)):
            out[j] += (
                (w0 * _as_single(c0[j]) + w1 * _as_single(c1[j])) + (w2 * _as_single(c2[j]) + w3 * _as_single(c3[j]))
            ) + ((w4 * _as_single(c4[j]) + w5 * _as_single(c5[j])) + (w6 * _as_single(c6[j]) + w7 * _as_single(c7[j])))
        r += 8
    while r < len(rows):
        row, weight = matrix[rows[r]], weights[r]
        for j in range(len(out)):
            out[j] += weight * _as_single(row[j])
        r += 1


@_loop
def _add_byte_rows(rows, weights, matrix, out):
    """Add the sum of these rows of a matrix in 8 bits, with these weights; eight rows at a time."""
    r = 0
    while r + 8 <= len(rows):
        c0, c1, c2, c3 = matrix[rows[r]], matrix[rows[r + 1]], matrix[rows[r + 2]], matrix[rows[r + 3]]
        c4, c5, c6, c7 = matrix[rows[r + 4]], matrix[rows[r + 5]], matrix[rows[r + 6]], matrix[rows[r + 7]]
        w0, w1, w2, w3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
        w4, w5, w6, w7 = weights[r + 4], weights[r + 5], weights[r + 6], weights[r + 7]
        for j in range(len(out)):
            out[j] += (
                (w0 * np.float32(c0[j]) + w1 * np.float32(c1[j])) + (w2 * np.float32(c2[j]) + w3 * np.float32(c3[j]))
            ) + ((w4 * np.float32(c4[j]) + w5 * np.float32(c5[j])) + (w6 * np.float32(c6[j]) + w7 * np.float32(c7[j])))
        r += 8
    while r < len(rows):
        row, weight = matrix[rows[r]], weights[r]
        for j in range(len(out)):
            out[j] += weight * np.float32(row[j])
        r += 1


# ----------------------------------------------------------------------------------------------------------- candidates


@_loop
def softmax(similarity, temperature, rows, out):
    """Weights rows·exp(similarity/temperature) that sum to 1 in each line (`ripml.decoding.votes.softmax`)."""
    for i in range(len(out)):
        highest, total = -np.inf, 0.0
        for j in range(out.shape[1]):
            if rows[i, j] > 0:
                highest = max(highest, similarity[i, j])
        for j in range(out.shape[1]):
            out[i, j] = rows[i, j] * np.exp((similarity[i, j] - highest) / temperature) if rows[i, j] > 0 else 0.0
            total += out[i, j]
        for j in range(out.shape[1]):
            out[i, j] /= total if total > 0 else 1.0


@_loop
def candidates(
    set_starts, set_labels, examples, weights, bounds, proposed, lifts, values, Z, Phi, scale, labels, signals, margin
):
    """The best candidates of each row and their signals (`ripml.decoding.signals.best_candidates`)."""
    n_signals, n_kept = len(bounds) - 1, labels.shape[1]
    for i in range(len(labels)):
        most = proposed.shape[1]
        for e in range(examples.shape[1]):
            most += set_starts[examples[i, e] + 1] - set_starts[examples[i, e]]
        size = 16
        while size < 2 * most:
            size *= 2
        table = np.full(size, -1, np.int64)  # label → its place among those found, by open addressing
        found = np.empty(most, np.int64)
        wanted = np.zeros(most, np.bool_)
        votes = np.zeros((n_signals, most))
        lift = np.zeros(most, np.float32)
        count = 0
        for s in range(n_signals):
            for e in range(bounds[s], bounds[s + 1]):
                number, weight = examples[i, e], weights[i, e]
                if weight == 0:
                    continue
                for t in range(set_starts[number], set_starts[number + 1]):
                    label = np.int64(set_labels[t])
                    at = (label * 0x9E3779B1) & (size - 1)
                    while table[at] >= 0 and found[table[at]] != label:
                        at = (at + 1) & (size - 1)
                    if table[at] < 0:
                        table[at] = count
                        found[count] = label
                        count += 1
                    votes[s, table[at]] += weight
        for p in range(count):
            for s in range(n_signals):
                votes[s, p] = np.rint(votes[s, p] * 1e12) / 1e12  # in whatever order they were added
                wanted[p] |= votes[s, p] != 0
        for e in range(proposed.shape[1]):
            label = proposed[i, e]
            if label < 0:
                continue
            at = (label * 0x9E3779B1) & (size - 1)
            while table[at] >= 0 and found[table[at]] != label:
                at = (at + 1) & (size - 1)
            if table[at] < 0:
                table[at] = count
                found[count] = label
                count += 1
            wanted[table[at]] = True
            lift[table[at]] += lifts[i, e]
        # The n_kept + 1 best by the sum of the signals, in order; ties go to the lower label.
        best = np.empty(n_kept + 1, np.int64)
        best_total = np.empty(n_kept + 1, np.float32)
        value = np.empty(max(count, 1), np.float32)
        n_best = 0
        for p in range(count):
            if not wanted[p]:
                continue
            if values.shape[0]:
                value[p] = values[i, found[p]] if found[p] < values.shape[1] else np.float32(0)
            else:
                value[p] = _dot(Phi[found[p]], Z[i]) / scale
            total = value[p]
            for s in range(n_signals):
                total += np.float32(votes[s, p])
            total += lift[p]
            at = n_best
            while at > 0 and (
                total > best_total[at - 1] or (total == best_total[at - 1] and found[p] < found[best[at - 1]])
            ):
                at -= 1
            if at > n_kept:
                continue
            n_best = min(n_best + 1, n_kept + 1)
            for b in range(n_best - 1, at, -1):
                best[b], best_total[b] = best[b - 1], best_total[b - 1]
            best[at], best_total[at] = p, total
        last = best_total[n_kept] if n_best > n_kept else np.float32(-np.inf)
        for b in range(n_kept):
            if b < n_best:
                labels[i, b] = found[best[b]]
                signals[0, i, b] = value[best[b]]
                for s in range(n_signals):
                    signals[s + 1, i, b] = np.float32(votes[s, best[b]])
                margin[i, b] = best_total[b] - last
            else:
                labels[i, b], margin[i, b] = -1, np.inf
                for s in range(n_signals + 1):
                    signals[s, i, b] = 0


@_loop
def likely_labels(indptr, indices, data, matrix, unit, errors, intercept, Phi, Z, present, out):
    """The labels of the largest ⟨Φ_l, ẑ⟩ of each row, by coefficients of labels in float16 bits
    (`ripml.regression.label_coefficients.LabelCoefficients.largest`)."""
    k, values = out.shape[1], np.empty(matrix.shape[1], np.float32)
    for i in range(len(out)):
        values[:] = 0
        entries = slice(indptr[i], indptr[i + 1])
        _add_half_rows(indices[entries], data[entries], matrix, values)
        bound = np.float32(1e-6)
        for t in range(indptr[i], indptr[i + 1]):
            bound += abs(data[t]) * errors[indices[t]]
        for label in range(len(values)):
            values[label] = values[label] * unit + intercept[label] if present[label] else np.float32(-np.inf)
        places = np.flatnonzero(values >= _kth_largest(values, k) - 2 * bound)
        exact = np.empty(len(places), np.float32)
        for p in range(len(places)):
            exact[p] = -_dot(Phi[places[p]], Z[i])
        first = _order(exact)
        for p in range(k):
            out[i, p] = places[first[p]] if p < len(places) else -1


@_loop
def _dot(one, other):
    """⟨one, other⟩ in float32; `one` may be the bits of float16."""
    dot = np.float32(0)
    for j in range(len(other)):
        dot += _as_single(one[j]) * other[j]
    return dot


@_loop
def least_squares(labels, Phi, Z, epsilon, out):
    """(Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S of each row, by Cholesky (`ripml.decoding.sketch.least_squares`)."""
    n, K = labels.shape
    gram, right = np.empty((K + 2, K + 2), np.float32), np.empty(K, np.float32)
    columns, places = np.zeros((K + 2, Z.shape[1]), np.float32), np.empty(K, np.int64)
    for i in range(n):
        size = 0
        for b in range(K):
            if labels[i, b] >= 0:
                places[size] = b
                size += 1
        for a in range(size):
            line = Phi[labels[i, places[a]]]
            for j in range(len(line)):
                columns[a, j] = _as_single(line[j])
        columns[size] = Z[i]  # the last line of the products is the right-hand side
        for a in range(0, size + 1, 2):
            for b in range(0, a + 1, 2):  # two by two, for half the reads
                a0, a1, b0, b1 = columns[a], columns[a + 1], columns[b], columns[b + 1]
                d00, d01, d10, d11 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
                for j in range(Z.shape[1]):
                    d00 += a0[j] * b0[j]
                    d01 += a0[j] * b1[j]
                    d10 += a1[j] * b0[j]
                    d11 += a1[j] * b1[j]
                gram[a, b], gram[a, b + 1], gram[a + 1, b], gram[a + 1, b + 1] = d00, d01, d10, d11
        for a in range(size):
            right[a] = gram[size, a]
            gram[a, a] += epsilon
        # gram = L Lᵀ in place, then L y = right and Lᵀ out = y.
        for a in range(size):
            for b in range(a):
                gram[a, a] -= gram[a, b] * gram[a, b]
            gram[a, a] = np.sqrt(gram[a, a])
            for c in range(a + 1, size):
                for b in range(a):
                    gram[c, a] -= gram[c, b] * gram[a, b]
                gram[c, a] /= gram[a, a]
        for a in range(size):
            for b in range(a):
                right[a] -= gram[a, b] * right[b]
            right[a] /= gram[a, a]
        for a in range(size - 1, -1, -1):
            for b in range(a + 1, size):
                right[a] -= gram[b, a] * right[b]
            right[a] /= gram[a, a]
        out[i] = 0
        for a in range(size):
            out[i, places[a]] = right[a]


@_loop
def standing(value, labels, tie, rank, best, third, total):
    """Where each value stands among those of its row (`ripml.decoding.signals._standing`)."""
    n, K = value.shape
    line = np.empty(K, np.float32)
    for i in range(n):
        for j in range(K):
            line[j] = value[i, j] if labels[i, j] >= 0 else np.float32(-np.inf)
        order = _order(-line)
        positive = np.float32(0)
        for r in range(K):
            rank[i, order[r]] = r
            positive += max(line[order[r]], np.float32(0))
        for shift in range(1, K):
            any_tied = False
            for r in range(K - shift):
                apart = line[order[r]] - line[order[r + shift]]
                if apart < tie / 2:  # not of two missing ones, whose difference is NaN
                    share = np.float32(0.5) - apart / tie
                    rank[i, order[r]] += share
                    rank[i, order[r + shift]] -= share
                    any_tied = True
            if not any_tied:
                break
        first, later = line[order[0]], line[order[min(2, K - 1)]]
        best[i] = first if np.isfinite(first) else np.float32(0)
        third[i] = later if np.isfinite(later) else np.float32(0)
        total[i] = positive


@_loop
def tree_probabilities(signals, feature, threshold, value, start, steepness, offset, out):
    """σ(start + Σ_t value_t) of columns of signals (S, N), with slopes at thresholds (`Trees.probabilities`).

    Every node is computed, from the leaves upwards, for many columns at a time: that takes no branches, and less time
    than to follow the way of each column. At a node the share min(max((s − threshold)·steepness + offset, 0), 1) goes
    to the right.
    """
    n_trees, inner = feature.shape
    width = 128
    found, log_odds = np.empty((inner, width), np.float32), np.empty(width)
    for begin in range(0, signals.shape[1], width):
        count = min(width, signals.shape[1] - begin)
        log_odds[:count] = start
        for t in range(n_trees):
            for node in range(inner - 1, -1, -1):
                f, here, below = feature[t, node], found[node], 2 * node + 1
                signal, limit, steep, off = (
                    signals[f, begin : begin + count],
                    threshold[t, node],
                    steepness[f],
                    offset[f],
                )
                if below >= inner:
                    low, high = value[t, below - inner], value[t, below + 1 - inner]
                    for c in range(count):
                        right = min(max((signal[c] - limit) * steep + off, np.float32(0)), np.float32(1))
                        here[c] = low + (high - low) * right if right < 1 else high
                else:
                    left, other = found[below], found[below + 1]
                    for c in range(count):
                        right = min(max((signal[c] - limit) * steep + off, np.float32(0)), np.float32(1))
                        here[c] = left[c] + (other[c] - left[c]) * right if right < 1 else other[c]
            for c in range(count):
                log_odds[c] += found[0, c]
        for c in range(count):
            out[begin + c] = 1 / (1 + np.exp(-log_odds[c]))


@_ordered_loop
def as_scores(labels, values, indices, data, indptr):
    """CSR rows of candidates with their labels in order, scores of six digits (`ripml.decoding.scores.as_scores`)."""
    count = 0
    for i in range(len(labels)):
        for p in _order(labels[i]):
            if labels[i, p] >= 0:
                indices[count] = labels[i, p]
                data[count] = np.rint(np.float64(values[i, p]) * 1e6) / 1e6
                count += 1
        indptr[i + 1] = count


@_loop
def cooccurrence(labels, simple, near, weights, set_starts, set_labels, prior, out):
    """max_a s_a · p(l | a) of the candidates (n, K) (`ripml.decoding.signals.cooccurrence`)."""
    n, n_kept = labels.shape
    together = np.empty((n_kept, n_kept), np.float32)
    found = np.empty(n_kept, np.int64)
    for i in range(n):
        order = np.argsort(labels[i])
        together[:] = 0
        for e in range(near.shape[1]):
            weight = np.float32(weights[i, e])
            if weight <= 0:
                continue
            count = 0
            for t in range(set_starts[near[i, e]], set_starts[near[i, e] + 1]):
                label, low, high = set_labels[t], 0, n_kept
                while low < high:  # the first candidate, in order, that is not below the label
                    middle = (low + high) // 2
                    if labels[i, order[middle]] < label:
                        low = middle + 1
                    else:
                        high = middle
                if low < n_kept and labels[i, order[low]] == label:
                    found[count] = order[low]
                    count += 1
            for a in range(count):
                for b in range(count):
                    together[found[a], found[b]] += weight
        for p in range(n_kept):
            best = np.float32(0)
            for a in range(n_kept):
                if a != p and together[a, p] > 0:
                    share = together[a, p] / (together[a, a] + prior)
                    best = max(best, min(max(simple[i, a], np.float32(0)), np.float32(1)) * share)
            out[i, p] = best


@_loop
def blended_scores(
    set_starts, set_labels, examples, weights, bounds, proposed, values, Z, Phi, n_learners, epsilon, frequency,
    tie, feature, threshold, value, start, steepness, offset, learnt, border, near, nearness, closeness, cooccurs,
    prior, n_kept, indices, data, indptr,
):  # fmt: skip
    """Candidates, their signals and the score of each, in one call (`FittedBlend.cluster_scores`).

    The steps are those of `FittedSignals._candidates` and `Candidates.scores`. Without least squares `epsilon` is 0.
    """
    n, n_sources = len(Z), len(bounds)
    labels, margin = np.empty((n, n_kept), np.int64), np.empty((n, n_kept), np.float32)
    n_signals = n_sources + 5 + cooccurs + closeness.shape[1]
    signals = np.empty((n_signals, n, n_kept), np.float32)
    candidates(
        set_starts, set_labels, examples, weights, bounds, proposed, np.zeros(proposed.shape, np.float32), values, Z,
        Phi, n_learners, labels, signals[:n_sources], margin,
    )  # fmt: skip
    if epsilon > 0:
        least_squares(labels, Phi, Z, epsilon, signals[0])
    of_row = np.empty((3, n), np.float32)
    standing(signals[0], labels, tie, signals[n_sources + 1], of_row[0], of_row[1], of_row[2])
    for i in range(n):
        for p in range(n_kept):
            signals[n_sources, i, p] = frequency[labels[i, p]]
            for s in range(3):
                signals[n_sources + 2 + s, i, p] = of_row[s, i]
            for s in range(closeness.shape[1]):
                signals[n_sources + 6 + s, i, p] = closeness[i, s]
    simple = np.empty((n, n_kept), np.float32)
    for i in range(n):
        for p in range(n_kept):
            total = np.float32(0)
            for s in range(n_sources):
                total += min(max(signals[s, i, p], np.float32(0)), np.float32(1))
            simple[i, p] = total / np.float32(n_sources)
    if cooccurs:
        cooccurrence(labels, simple, near, nearness, set_starts, set_labels, prior, signals[n_sources + 5])
    flat = signals.reshape((n_signals, n * n_kept))
    scores = np.empty((n, n_kept), np.float32)
    tree_probabilities(flat, feature, threshold, value, start, steepness, offset, scores.reshape(n * n_kept))
    for i in range(n):
        for p in range(n_kept):
            sure = min(max(margin[i, p] / border, np.float32(0)), np.float32(1))
            scores[i, p] = (learnt * scores[i, p] + (np.float32(1) - learnt) * simple[i, p]) * sure
    as_scores(labels, scores, indices, data, indptr)


# ----------------------------------------------------------------------------------------------------------- local rows


@_loop
def nearest_rows(
    indptr, indices, data, starts, rows, values, place, block, lengths, halves, gone, left_out, late, numbers, k, tied,
    ids, found
):  # fmt: skip
    """The k rows nearest to each CSR row, the nearest first, and their likeness (`TrainingRows.nearest`).

    The products with rare features are added up by their lists. What the frequent ones add, `block` (n, F), is at most
    the product of two `lengths`, so that it is computed only for rows that may be among the k nearest. `late` (b, r) is
    the likeness of further rows; `gone` (n + r,) marks rows that do not count.
    """
    n, width = block.shape
    n_all = n + late.shape[1]
    partial, query = np.empty(n, np.float32), np.empty(width, np.float32)
    places, likeness = np.empty(n_all, np.int64), np.empty(n_all, np.float32)
    best_ids, best = np.empty((1, k), np.int64), np.empty((1, k), np.float32)
    for i in range(len(indptr) - 1):
        partial[:] = -halves
        query[:] = 0
        for t in range(indptr[i], indptr[i + 1]):
            feature, value = indices[t], data[t]
            if place[feature] >= 0:
                query[place[feature]] += value
            else:
                for e in range(starts[feature], starts[feature + 1]):
                    partial[rows[e]] += value * values[e]
        for r in range(n if len(gone) else 0):
            if gone[r]:
                partial[r] = -np.inf
        own = left_out[i] if len(left_out) else -1
        if 0 <= own < n:
            partial[own] = -np.inf
        square = np.float32(0)
        for j in range(width):
            square += query[j] * query[j]
        length = np.sqrt(square) * np.float32(1.0001)  # rounding must not leave out a row
        # The k-th largest likeness of the rows that look best so far is a lower bound of the k-th largest of all.
        least, limit = _kth_largest(partial, min(k, n)), np.float32(-np.inf)
        if least > -np.inf and k <= n:
            count = 0
            for r in range(n):
                if partial[r] >= least:
                    likeness[count] = partial[r] + _dot(query, block[r])
                    count += 1
            limit = _kth_largest(likeness[:count], k)
            limit -= tied + np.float32(1e-5) * abs(limit)
        count = 0
        for r in range(n):
            if partial[r] + length * lengths[r] >= limit:
                places[count], likeness[count] = r, partial[r] + _dot(query, block[r])
                count += 1
        for e in range(late.shape[1]):
            places[count] = n + e
            likeness[count] = -np.inf if own == n + e or (len(gone) and gone[n + e]) else late[i, e]
            count += 1
        most_similar(likeness[:count].reshape(1, count), numbers[places[:count]], k, tied, best_ids, best)
        for e in range(k):
            ids[i, e], found[i, e] = places[best_ids[0, e]], best[0, e]


@_loop
def _row_product(query, columns, values):
    """⟨x, row⟩ of a dense query with the entries of a sparse row."""
    total = np.float32(0)
    for e in range(len(columns)):
        total += values[e] * query[columns[e]]
    return total


@_loop
def largest_first(starts, rows, values, shift, out_rows, out_values):
    """The entries of each list by falling size; those of one level, `bits >> shift` of their values, stay in order."""
    free = np.empty((1 << (31 - shift)) + 1, np.int64)  # the place of the next entry of each level
    levels = values.view(np.int32) >> shift
    for feature in range(len(starts) - 1):
        start, end = starts[feature], starts[feature + 1]
        if start == end:
            continue
        highest, lowest = levels[start:end].max(), levels[start:end].min()
        free[: highest - lowest + 2] = 0
        for e in range(start, end):
            free[highest - levels[e] + 1] += 1
        free[0] = start
        for level in range(highest - lowest + 1):
            free[level + 1] += free[level]
        for e in range(start, end):
            to = free[highest - levels[e]]
            free[highest - levels[e]] += 1
            out_rows[to], out_values[to] = rows[e], values[e]


@_loop
def _largest_terms(weights, features, starts, values, levels, shift, most, first, last, middle):
    """How far to read the list of each feature, `first`, so that the `most` largest terms of all are read.

    A term is the weight of a feature times an entry of its list. Returns whether these are all terms.
    """
    limit, total, negative = np.zeros(1, np.float32), 0, False
    bits = limit.view(np.int32)
    high = np.float32(0)
    for t in range(len(features)):
        start, end = starts[features[t]], starts[features[t] + 1]
        first[t], last[t] = start, end if weights[t] > 0 else start
        total += last[t] - start
        negative |= weights[t] < 0
        if last[t] > start:
            high = max(high, weights[t] * values[start])
    if total <= most:
        first[: len(features)] = last[: len(features)]
        return not negative
    # The size that fewer than `most` terms exceed, by bisection of its logarithm: it lies between `low` and `high`, and
    # the end of each list between `first` and `last`.
    low, high = high * np.float32(2.0**-24), high * np.float32(1.25)
    for _ in range(20):
        size, total = np.sqrt(low) * np.sqrt(high), 0
        for t in range(len(features)):
            begin, end = first[t], last[t]
            if begin < end:
                limit[0] = size / weights[t]
                level = bits[0] >> shift
                while begin < end:
                    half = (begin + end) >> 1
                    if levels[half] >> shift >= level:
                        begin = half + 1
                    else:
                        end = half
            middle[t] = begin
            total += begin - starts[features[t]]
        if total > most:
            low = size
            last[: len(features)] = middle[: len(features)]
        else:
            high = size
            first[: len(features)] = middle[: len(features)]
            if total > most - most // 16:
                break
    # Entries of one level cannot be told apart: some of those at the limit are read as well.
    for t in range(len(features)):
        most -= first[t] - starts[features[t]]
    for t in range(len(features)):
        more = max(min(last[t] - first[t], most), 0)
        first[t] += more
        most -= more
    return False


@_loop
def likely_rows(
    indptr, indices, data, starts, rows, values, shift, row_ends, row_columns, row_values, halves, gone, left_out, late,
    numbers, n_terms, n_compared, k, tied, ids, found
):  # fmt: skip
    """The k nearest of the rows that the largest terms of the products propose (`TrainingRows.nearest`).

    Lists are in the order of `largest_first`. The `n_terms` largest terms x_j x'_j of a query are added up; the
    likeness of about `n_compared` rows with the largest sums is computed from the rows themselves. If a query has no
    more terms than that, the sums are the products, and if fewer than k rows share a feature with it, all other rows
    are compared as well. The other arguments are those of `nearest_rows`.
    """
    n, n_bins, n_late = len(halves), 1024, late.shape[1]
    sums, query = np.zeros(n, np.float32), np.zeros(len(starts) - 1, np.float32)
    touched, scores = np.empty(min(n, n_terms) + 1, np.int64), np.empty(min(n, n_terms) + 1, np.float32)
    places, likeness = np.empty(n + n_late, np.int64), np.empty(n + n_late, np.float32)
    counts, levels = np.empty(n_bins, np.int64), values.view(np.int32)
    best_ids, best = np.empty((1, k), np.int64), np.empty((1, k), np.float32)
    width = 0
    for i in range(len(indptr) - 1):
        width = max(width, indptr[i + 1] - indptr[i])
    first, last, middle = np.empty(width, np.int64), np.empty(width, np.int64), np.empty(width, np.int64)
    for i in range(len(indptr) - 1):
        features, weights = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        complete = _largest_terms(weights, features, starts, values, levels, shift, n_terms, first, last, middle)
        n_touched = 0
        for t in range(len(features)):
            query[features[t]] = weights[t]
            for e in range(starts[features[t]], first[t]):
                row, term = rows[e], weights[t] * values[e]
                if term > 0:  # not where it is too small for its type
                    before = sums[row]
                    touched[n_touched] = row
                    n_touched += before == 0
                    sums[row] = before + term
        own = left_out[i] if len(left_out) else -1
        kept, most = 0, np.float32(0)
        for e in range(n_touched):
            row = touched[e]
            total = sums[row]
            sums[row] = 0
            touched[kept], scores[kept] = row, total
            if row != own and not (len(gone) and gone[row]):
                kept += 1
                most = max(most, total)
        # The sum that `n_compared` rows exceed, found in a histogram.
        cut = np.float32(0)
        if kept > n_compared:
            counts[:] = 0
            per_bin = np.float32(n_bins - 1) / most
            for e in range(kept):
                counts[np.int64(scores[e] * per_bin)] += 1
            above, bin = counts[n_bins - 1], n_bins - 1
            while above < n_compared:
                bin -= 1
                above += counts[bin]
            cut = np.float32(bin) / per_bin * np.float32(1 - 1e-6)
        count = 0
        for e in range(kept):
            if scores[e] >= cut:
                row = touched[e]
                places[count] = row
                entries = slice(row_ends[row], row_ends[row + 1])
                likeness[count] = _row_product(query, row_columns[entries], row_values[entries]) - halves[row]
                count += 1
        if count < k:
            for e in range(count):
                sums[places[e]] = 1
            compared = count
            for row in range(n):
                if sums[row] == 0:
                    entries, product = slice(row_ends[row], row_ends[row + 1]), np.float32(0)
                    if not complete:
                        product = _row_product(query, row_columns[entries], row_values[entries])
                    missing = row == own or (len(gone) and gone[row])
                    places[count], likeness[count] = row, -np.inf if missing else product - halves[row]
                    count += 1
            for e in range(compared):
                sums[places[e]] = 0
        for e in range(n_late):
            places[count] = n + e
            likeness[count] = -np.inf if own == n + e or (len(gone) and gone[n + e]) else late[i, e]
            count += 1
        most_similar(likeness[:count].reshape(1, count), numbers[places[:count]], k, tied, best_ids, best)
        for e in range(k):
            ids[i, e], found[i, e] = places[best_ids[0, e]], best[0, e]
        for t in range(len(features)):
            query[features[t]] = 0


@_loop
def products_among(indptr, indices, data, ids, n_features, many, out):
    """⟨row, row'⟩ of all pairs of CSR rows `ids` (k,), but for the diagonal (`Rows.products_among`).

    A feature that one row has adds nothing. Those of `many` rows go through a dense matrix; each other one has a list
    of the rows that have it, which an entry is multiplied with as it is added.
    """
    k = len(ids)
    # Of each feature: the rows that have it; later −1 for a column of the matrix, or −2 less the length of its list.
    count, place = np.zeros(n_features, np.int32), np.empty(n_features, np.int32)
    width, total = 0, 0
    for a in range(k):
        for t in range(indptr[ids[a]], indptr[ids[a] + 1]):
            count[indices[t]] += 1
            width += count[indices[t]] == many
        total += indptr[ids[a] + 1] - indptr[ids[a]]
    dense = np.zeros((k, width), np.float32)
    listed, values = np.empty(total, np.int32), np.empty(total, np.float32)
    width, total = 0, 0
    for a in range(k):
        line = out[a]
        line[:a] = 0
        for t in range(indptr[ids[a]], indptr[ids[a] + 1]):
            feature, value = indices[t], data[t]
            if count[feature] == 1:
                continue
            if count[feature] >= many:
                place[feature], count[feature] = width, -1
                width += 1
            elif count[feature] > 1:
                place[feature] = total
                total += count[feature]
                count[feature] = -2
            if count[feature] == -1:
                dense[a, place[feature]] = value
            else:
                start, end = place[feature], place[feature] - count[feature] - 2
                for e in range(start, end):
                    line[listed[e]] += value * values[e]
                listed[end], values[end] = a, value
                count[feature] -= 1
    for a in range(k):
        line, row, b = out[a], dense[a], 0
        while b + 4 <= a:
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            d0, d1, d2, d3 = dense[b], dense[b + 1], dense[b + 2], dense[b + 3]
            for j in range(width):
                s0 += row[j] * d0[j]
                s1 += row[j] * d1[j]
                s2 += row[j] * d2[j]
                s3 += row[j] * d3[j]
            line[b] += s0
            line[b + 1] += s1
            line[b + 2] += s2
            line[b + 3] += s3
            b += 4
        while b < a:
            line[b] += _dot(row, dense[b])
            b += 1
        for b in range(a):
            out[b, a] = line[b]


# -------------------------------------------------------------------------------------------------------- in few bytes


@_loop
def sparse_bytes(indptr, indices, data, matrix, units, out):
    """CSR rows times a matrix of lines in 8 bits (`ripml.base.products.sparse_bytes_product`)."""
    for i in range(len(indptr) - 1):
        line = out[i]
        line[:] = 0
        entries = slice(indptr[i], indptr[i + 1])
        _add_byte_rows(indices[entries], data[entries] * units[indices[entries]], matrix, line)


@_loop
def unpack_indices(packed, indptr, n_columns, out):
    """Whether packed indices are those of columns; then `out` has them (`ripml.base.arrays.unpacked_indices`).

    There are as many last bytes of steps as entries, and the last byte is one of them.
    """
    at = 0
    for i in range(len(indptr) - 1):
        index = np.int64(-1)
        for t in range(indptr[i], indptr[i + 1]):
            step, shift = np.int64(0), 0
            while packed[at] >= 128:
                step |= np.int64(packed[at] & 127) << shift
                shift += 7
                at += 1
                if shift > 28:
                    return False
            index += 1 + (step | np.int64(packed[at]) << shift)
            at += 1
            if index >= n_columns:
                return False
            out[t] = index
    return True


# ------------------------------------------------------------------------------------------------------------- training


@_ordered_loop
def _first_from(indices, low, high, feature):
    """The first place from `low` to `high` of sorted indices whose index is not below `feature`."""
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low


@_ordered_loop
def scattered(indptr, indices, data, matrix, start, stop, out):
    """The lines `start` to `stop` of XᵀV, for CSR rows X with sorted indices and a matrix V
    (`ripml.base.products.transposed_product`). Each entry is added up in the order of rows."""
    out[start:stop] = 0
    for i in range(len(indptr) - 1):
        row, end = matrix[i], indptr[i + 1]
        for e in range(_first_from(indices, indptr[i], end, start), end):
            if indices[e] >= stop:
                break
            line, value = out[indices[e]], data[e]
            for j in range(len(row)):
                line[j] += value * row[j]


@_ordered_loop
def add_transposed(indptr, indices, data, matrix, start, stop, out):
    """Add the columns `start` to `stop` of XᵀV to `out`, for CSR rows X and a matrix V, in the order of rows
    (`ripml.base.products.transposed_product`)."""
    for i in range(len(indptr) - 1):
        row = matrix[i]
        for e in range(indptr[i], indptr[i + 1]):
            line, value = out[indices[e]], data[e]
            for j in range(start, stop):
                line[j] += value * row[j]


@_ordered_loop
def add_gram_product(indptr, indices, data, matrix, out):
    """Add XᵀXV to `out`, for CSR rows X and a matrix V, in the order of rows (`ripml.regression.iterative`)."""
    product = np.empty(matrix.shape[1], out.dtype)
    for i in range(len(indptr) - 1):
        product[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            row, value = matrix[indices[e]], data[e]
            for j in range(len(product)):
                product[j] += value * row[j]
        for e in range(indptr[i], indptr[i + 1]):
            line, value = out[indices[e]], data[e]
            for j in range(len(product)):
                line[j] += value * product[j]


@_ordered_loop
def gram_lines(indptr, indices, data, dense, start, stop, rare, common, out):
    """The lines of XᵀX of the rare features numbered `start` to `stop`, in its upper triangle
    (`ripml.base.products.gram_of`).

    The rare features of X are CSR rows with sorted indices, its common features a matrix (n, C); `rare` and `common`
    are their places in X. A row is read once for all these features, and each entry is added up in the order of rows.
    """
    with_rare = np.zeros((stop - start, len(rare)), out.dtype)
    with_common = np.zeros((stop - start, len(common)), out.dtype)
    for i in range(len(indptr) - 1):
        others, end = dense[i], indptr[i + 1]
        for place in range(_first_from(indices, indptr[i], end, start), end):
            f, value = indices[place] - start, data[place]
            if indices[place] >= stop:
                break
            line = with_rare[f]
            for e in range(place, end):
                line[indices[e]] += value * data[e]
            line = with_common[f]
            for c in range(len(others)):
                line[c] += value * others[c]
    for f in range(start, stop):
        place = rare[f]
        for g in range(f, len(rare)):
            out[place, rare[g]] = with_rare[f - start, g]
        for c in range(len(common)):
            out[min(place, common[c]), max(place, common[c])] = with_common[f - start, c]


@_ordered_loop
def mirror(out, start, stop):
    """Lines of a symmetric matrix to the left of the diagonal, from `start` to `stop`, from the upper triangle."""
    for first in range(0, stop, 64):  # a tile of so many lines stays in the cache
        for i in range(max(start, first), stop):
            for j in range(first, min(first + 64, i)):
                out[i, j] = out[j, i]


@_ordered_loop
def grow_tree(bins, gradient, hessian, rising, leaf, least_hessian, tiny, feature, cut, value, node):
    """One tree of full depth on binned signals (n, S), as the node of each line in the last level, the signals and the
    last bins that go left of all inner nodes, −1 where a node is not split, and the values of the leaves
    (`ripml.decoding.boosting.grow_tree`)."""
    n_signals, n_leaves = bins.shape[1], len(value)
    sums, before = np.empty((2, (n_leaves + 1) // 2, n_signals, 255, 3))
    counted = np.ones(n_leaves, np.bool_)
    lower, upper = np.full(n_leaves, -np.inf), np.full(n_leaves, np.inf)
    total_gradient = np.zeros(n_leaves)
    value[:] = 0
    node[:] = 0
    width = 1
    while width < n_leaves:
        # Of two children only the smaller one is counted; the other is the rest of their parent.
        sums, before = before, sums
        sums[:width] = 0
        for i in range(len(bins)):
            if not counted[node[i]]:
                continue
            of_node, g, h = sums[node[i]], np.float64(gradient[i]), np.float64(hessian[i])
            for s in range(n_signals):
                cell = of_node[s, bins[i, s]]
                cell[0] += g
                cell[1] += h
                cell[2] += 1
        for n in range(width):
            if not counted[n]:
                sums[n] = before[n // 2] - sums[n ^ 1]
        for n in range(width - 1, -1, -1):  # children take the places 2n and 2n + 1
            place, best, node_value = width - 1 + n, 0.0, value[n]
            low, high = lower[n], upper[n]
            left_value, right_value, left_gradient, right_gradient = node_value, node_value, total_gradient[n], 0.0
            feature[place], cut[place], fewer_left = 0, -1, False
            for s in range(n_signals):
                all_g, all_h, all_n = 0.0, 0.0, 0.0
                for b in range(255):
                    all_g += sums[n, s, b, 0]
                    all_h += sums[n, s, b, 1]
                    all_n += sums[n, s, b, 2]
                g, h, count = 0.0, 0.0, 0.0
                for b in range(254):
                    g += sums[n, s, b, 0]
                    h += sums[n, s, b, 1]
                    count += sums[n, s, b, 2]
                    if count < leaf or h < least_hessian:
                        continue
                    if all_n - count < leaf or all_h - h < least_hessian:
                        break
                    of_left = min(max(-g / (h + tiny), low), high)
                    of_right = min(max(-(all_g - g) / (all_h - h + tiny), low), high)
                    gain = total_gradient[n] * node_value - g * of_left - (all_g - g) * of_right
                    if gain > best and (of_left <= of_right or not rising[s]):
                        best = gain
                        feature[place], cut[place] = s, b
                        left_value, right_value, left_gradient, right_gradient = of_left, of_right, g, all_g - g
                        fewer_left = 2 * count <= all_n
            middle = (left_value + right_value) / 2
            bounded = cut[place] >= 0 and rising[feature[place]]
            counted[2 * n], counted[2 * n + 1] = fewer_left, not fewer_left
            value[2 * n], value[2 * n + 1] = left_value, right_value
            total_gradient[2 * n], total_gradient[2 * n + 1] = left_gradient, right_gradient
            lower[2 * n], upper[2 * n] = low, middle if bounded else high
            lower[2 * n + 1], upper[2 * n + 1] = middle if bounded else low, high
        for i in range(len(bins)):
            place = width - 1 + node[i]
            right = cut[place] >= 0 and bins[i, feature[place]] > cut[place]
            node[i] = 2 * node[i] + (1 if right else 0)
        width *= 2


# ---------------------------------------------------------------------------------------------------------------- names


@_ordered_loop
def names_in_text(numbers, list_ends, listed, word_ends, words):
    """The names that stand in a text (`ripml.text.matching.NameMatcher._in_sentences`)."""
    n, most = len(numbers), 0
    # Each stem of the text has a slot, by open addressing, with its last sentence and its places there.
    n_slots = 16
    while n_slots < 2 * n:
        n_slots *= 2
    stems = np.full(n_slots, -1, np.int64)
    sentence, times = np.full(n_slots, -1, np.int64), np.zeros(n_slots, np.int64)
    first_place, last_place = np.zeros(n_slots, np.int64), np.zeros(n_slots, np.int64)
    slots = np.empty(n, np.int64)
    for i in range(n):
        slots[i] = -1
        if numbers[i] >= 0:
            slots[i] = _slot(stems, numbers[i])
            stems[slots[i]] = numbers[i]
            most += list_ends[numbers[i] + 1] - list_ends[numbers[i]]
    size = 16
    while size < 2 * most:
        size *= 2
    table = np.full(size, -1, np.int64)  # the names found, in their slots
    lines = np.empty(size, np.int64)
    found = np.empty((most, 5), np.int64)
    n_found, end = 0, -1
    while end < n:
        start = end + 1
        end = start
        while end < n and numbers[end] != -2:
            end += 1
        for i in range(start, end):
            slot = slots[i]
            if slot >= 0:
                if sentence[slot] != start:
                    sentence[slot], times[slot], first_place[slot] = start, 0, i
                times[slot] += 1
                last_place[slot] = i
        for i in range(start, end):
            if slots[i] < 0 or first_place[slots[i]] != i:
                continue
            for at in range(list_ends[numbers[i]], list_ends[numbers[i] + 1]):
                name = listed[at]
                first, last, count = end, start, n
                for w in range(word_ends[name], word_ends[name + 1]):
                    slot = _slot(stems, words[w])
                    if stems[slot] < 0 or sentence[slot] != start:
                        count = 0
                        break
                    count = min(count, times[slot])
                    first, last = min(first, first_place[slot]), max(last, last_place[slot])
                if count == 0:
                    continue
                width = _width(numbers[start:end], words[word_ends[name] : word_ends[name + 1]], first - start)
                at_name = _slot(table, name)
                if table[at_name] < 0:
                    table[at_name], lines[at_name] = name, n_found
                    found[n_found] = name, 0, first, last, width
                    n_found += 1
                line = lines[at_name]
                found[line, 1] += count
                found[line, 3] = last
                found[line, 4] = min(found[line, 4], width)
    return found[:n_found].copy()


@_ordered_loop
def alike_names(stems, added, ends, names, totals, lengths, whole, n_partly, share, rounding, sums):
    """The names that have stems of a text, and how much of them stands there (`ripml.text.name_parts`)."""
    most = 0
    for stem in stems:
        most += ends[stem + 1] - ends[stem]
    touched = np.empty(most, np.int64)
    n_touched = 0
    for i in range(len(stems)):
        for at in range(ends[stems[i]], ends[stems[i] + 1]):
            name = names[at]
            if sums[name, 0] == 0:
                touched[n_touched] = name
                n_touched += 1
            sums[name, 0] += added[i, 0]
            sums[name, 1] += added[i, 1]
    alike = np.empty((len(whole), 2))
    for i in range(len(whole)):
        alike[i, 0] = sums[whole[i], 0] / totals[whole[i]]
        alike[i, 1] = sums[whole[i], 1] / lengths[whole[i]]
        sums[whole[i]] = 0
    # The largest scores so far are a heap, with the least of them first.
    heap = np.full(n_partly, -np.inf)
    scores = np.empty(n_touched)
    for i in range(n_touched):
        name = touched[i]
        scores[i] = -np.inf
        if sums[name, 0] != 0:
            scores[i] = sums[name, 1] / lengths[name] + share * (sums[name, 0] / totals[name])
        if n_partly and scores[i] > heap[0]:
            at = 0
            while 2 * at + 1 < n_partly:
                below = 2 * at + 1
                if below + 1 < n_partly and heap[below + 1] < heap[below]:
                    below += 1
                if heap[below] >= scores[i]:
                    break
                heap[at] = heap[below]
                at = below
            heap[at] = scores[i]
    n_more = 0
    for i in range(n_touched):
        if n_partly and scores[i] >= heap[0] - rounding and scores[i] > -np.inf:
            n_more += 1
    partly, more = np.empty(n_more, np.int64), np.empty((n_more, 2))
    n_more = 0
    for i in range(n_touched):
        name = touched[i]
        if n_partly and scores[i] >= heap[0] - rounding and scores[i] > -np.inf:
            partly[n_more] = name
            more[n_more, 0], more[n_more, 1] = sums[name, 0] / totals[name], sums[name, 1] / lengths[name]
            n_more += 1
        sums[name] = 0
    return alike, partly, more


@_ordered_loop
def _slot(table, key):
    """The slot of a key in a table of keys ≥ 0, or the empty one, −1, where it belongs; its size is a power of two."""
    at = (key * 0x9E3779B1) & (len(table) - 1)
    while table[at] >= 0 and table[at] != key:
        at = (at + 1) & (len(table) - 1)
    return at


@_ordered_loop
def _width(sentence, words, first):
    """The number of words of the shortest passage of a sentence, from its word `first` on, that has all `words`."""
    if len(words) == 1:
        return 1
    width = len(sentence)
    for begin in range(first, len(sentence)):
        starts = False
        for word in words:
            starts |= word == sentence[begin]
        if not starts:
            continue
        reach = begin
        for word in words:
            j = begin
            while j < len(sentence) and sentence[j] != word:
                j += 1
            reach = max(reach, j)
        if reach == len(sentence):
            break
        width = min(width, reach - begin + 1)
    return width


# ------------------------------------------------------------------------------------------------------------------ map


@_ordered_loop
def layout_step(indptr, indices, weights, now, speed, seed, number, m, settings, start, stop, then):
    """One step of the rows from `start` to `stop` of a map (`ripml.model.layout._step`), with the same sums."""
    pull, push, near, rate, momentum = settings
    golden, mix, mix_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    n = np.uint64(len(now))
    for i in range(start, stop):
        x, y = now[i, 0], now[i, 1]
        drawn_x = drawn_y = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            dx, dy = now[indices[e], 0] - x, now[indices[e], 1] - y
            c = weights[e] / (1.0 + (dx * dx + dy * dy))
            drawn_x += c * dx
            drawn_y += c * dy
        pushed_x = pushed_y = 0.0
        first = np.uint64(i) * golden + seed * mix_2
        for s in range(m):
            word = first + np.uint64(number * m + s + 1) * mix
            word = (word ^ (word >> np.uint64(30))) * mix
            word = (word ^ (word >> np.uint64(27))) * mix_2
            other = np.int64((word ^ (word >> np.uint64(31))) % n)
            dx, dy = x - now[other, 0], y - now[other, 1]
            d2 = dx * dx + dy * dy
            c = 1.0 / ((near + d2) * (1.0 + d2))
            pushed_x += c * dx
            pushed_y += c * dy
        speed[i, 0] = momentum * speed[i, 0] + rate * (pull * drawn_x + push * pushed_x)
        speed[i, 1] = momentum * speed[i, 1] + rate * (pull * drawn_y + push * pushed_y)
        then[i, 0] = x + speed[i, 0]
        then[i, 1] = y + speed[i, 1]
