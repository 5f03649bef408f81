"""The hot loops of an answer, compiled by Numba. `ripml.base.compiled.loops` imports this module where it can.

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
def _from_half(typing: Any, bits: Any) -> Any:
    """float32 of the bits of a float16; the processor has an instruction for that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def _to_half(typing: Any, value: Any) -> Any:
    """The bits of the float16 nearest to a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


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


@_loop
def sparse_half(indptr, indices, data, matrix, out):
    """CSR rows times a matrix of float16 bits (`ripml.base.products.sparse_half_product`)."""
    for i in range(len(indptr) - 1):
        line = out[i]
        line[:] = 0
        for t in range(indptr[i], indptr[i + 1]):
            row, value = matrix[indices[t]], data[t]
            for j in range(len(line)):
                line[j] += value * _from_half(row[j])


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


@_loop
def near_sum(likeness, squares, grade, n_near, width, coefficients, total, moment, linear, out):
    """Σ_i K(x, x_i) C_i with the kernel of distant rows as a line (`FarField.kernel_sum`)."""
    n = likeness.shape[1]
    n_bins = 1024
    counts = np.empty(n_bins, np.int64)
    near = np.empty(n, np.int64)
    weights = np.empty(n, np.float32)
    for i in range(len(likeness)):
        line = likeness[i]
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for r in range(n):
            if line[r] > -np.inf:
                low, high = min(low, line[r]), max(high, line[r])
        # The likeness that n_near rows exceed, found in a histogram.
        step = max(np.float32((high - low) / n_bins), np.float32(1e-30))
        per_step = np.float32(1) / step
        counts[:] = 0
        for r in range(n):
            if line[r] > -np.inf:
                counts[min(n_bins - 1, int((line[r] - low) * per_step))] += 1
        above, place = 0, n_bins
        while place > 0 and above + counts[place - 1] <= n_near:
            place -= 1
            above += counts[place]
        cut = low + step * place
        if place > 0:
            cut -= step * np.float32(n_near - above) / np.float32(counts[place - 1])
        # The near rows, and the moments of the likeness of distant ones around `low`.
        count, n_far, first, second, third = 0, 0, 0.0, 0.0, 0.0
        for r in range(n):
            if line[r] > cut:
                near[count] = r
                count += 1
            elif line[r] > -np.inf:
                apart = np.float64(line[r]) - low
                n_far += 1
                first += apart
                second += apart * apart
                third += apart * apart * apart
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
        r = 0
        while r + 4 <= count:
            c0, c1 = coefficients[near[r]], coefficients[near[r + 1]]
            c2, c3 = coefficients[near[r + 2]], coefficients[near[r + 3]]
            w0, w1, w2, w3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
            for j in range(len(result)):
                result[j] += (w0 * _from_half(c0[j]) + w1 * _from_half(c1[j])) + (
                    w2 * _from_half(c2[j]) + w3 * _from_half(c3[j])
                )
            r += 4
        while r < count:
            c0, w0 = coefficients[near[r]], weights[r]
            for j in range(len(result)):
                result[j] += w0 * _from_half(c0[j])
            r += 1


# ----------------------------------------------------------------------------------------------------------- candidates


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
                column, query, dot = Phi[found[p]], Z[i], np.float32(0)
                for j in range(len(query)):
                    dot += column[j] * query[j]
                value[p] = dot / scale
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
def least_squares(labels, Phi, Z, epsilon, out):
    """(Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S of each row, by Cholesky (`ripml.decoding.sketch.least_squares`)."""
    n, K = labels.shape
    gram, right = np.empty((K, K), np.float32), np.empty(K, np.float32)
    for i in range(n):
        size = 0
        while size < K and labels[i, size] >= 0:
            size += 1
        query = Z[i]
        for a in range(size):
            row, dot = Phi[labels[i, a]], np.float32(0)
            for j in range(len(query)):
                dot += row[j] * query[j]
            right[a] = dot
            for b in range(a + 1):
                other, dot = Phi[labels[i, b]], np.float32(0)
                for j in range(len(query)):
                    dot += row[j] * other[j]
                gram[a, b] = dot
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
        out[i, :size] = right[:size]
        out[i, size:] = 0


@_loop
def standing(value, labels, tie, n_tied, rank, best, third, total):
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
        for shift in range(1, min(n_tied, K)):
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
def tree_probabilities(table, feature, threshold, value, start, widths, out):
    """σ(start + Σ_t value_t) of lines of signals, with slopes at thresholds (`Trees.probabilities`)."""
    n_trees, inner = feature.shape
    shares = np.empty(2 * inner + 1, np.float32)
    for i in range(len(table)):
        signals = table[i]
        log_odds = 0.0
        for t in range(n_trees):
            node, on_slope = 0, False
            while node < inner:
                signal = feature[t, node]
                above = signals[signal] - threshold[t, node]
                on_slope |= abs(above) < widths[signal] / 2
                node = 2 * node + 1 + (1 if above > 0 else 0)
            if not on_slope:
                log_odds += value[t, node - inner]
                continue
            shares[0] = 1
            leaf_sum = np.float32(0)
            for place in range(inner):
                signal = feature[t, place]
                above = signals[signal] - threshold[t, place]
                if widths[signal] > 0:
                    right = min(max(above / widths[signal] + np.float32(0.5), np.float32(0)), np.float32(1))
                else:
                    right = np.float32(1 if above > 0 else 0)
                to_right = shares[place] * right if shares[place] > 0 else np.float32(0)
                shares[2 * place + 1], shares[2 * place + 2] = shares[place] - to_right, to_right
            for leaf in range(inner + 1):
                leaf_sum += shares[inner + leaf] * value[t, leaf]
            log_odds += leaf_sum
        out[i] = 1 / (1 + np.exp(-(log_odds + start)))


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
