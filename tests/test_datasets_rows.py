"""The two parsers of rows are one: whatever the slow one says of a file, the fast one says too."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ripml.base.errors import DataError
from ripml.datasets.formats.rows import Rows, _parse_fast, parse, parse_slowly, shortest

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
value_texts = st.one_of(
    floats.map(repr),
    floats.map(lambda v: f"{v:.16g}"),
    floats.map(lambda v: f"{v:e}"),
    st.decimals(-1000, 1000, places=5).map(str),
    st.integers(0, 10**18).map(str),
    st.from_regex(r"-?[0-9]{1,17}\.[0-9]{1,21}", fullmatch=True),
    # Decimals at and around the middle of two float32 numbers, where rounding is hardest.
    st.tuples(st.integers(2**23, 2**24), st.integers(0, 30), st.sampled_from(["", "1", "0000000001"])).map(
        lambda t: f"{Decimal(2 * t[0] + 1) / 2 ** t[1]:f}" + (t[2] if t[1] else "")
    ),
    st.sampled_from(["1.", ".5", "+1", "-0", "1e5", "00012.5000", "inf", "nan", "1e39", "1_0", "0x1", "", ".", "-"]),
)
index_texts = st.one_of(
    st.integers(0, 30).map(str),
    st.integers(0, 10**17).map(str),
    st.sampled_from(["-1", "+3", "007", "1.0", "", "x", "9" * 16, "9" * 30]),
)
blanks = st.sampled_from([" ", " ", " ", " ", "  ", "\t", ""])


@st.composite
def canonical_chunks(draw: st.DrawFn) -> bytes:
    """Return lines as every writer writes them: sorted, single spaces, plain decimals."""
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        labels = sorted(draw(st.sets(st.integers(0, 10**8 + 5), max_size=4)))
        features = sorted(draw(st.sets(st.integers(0, 10**9), max_size=5)))
        decimals = [draw(st.integers(0, 10**9)) / 10 ** draw(st.integers(0, 5)) for _ in features]
        pairs = (f"{feature}:{value:.5f}" for feature, value in zip(features, decimals, strict=True))
        lines.append(f"{','.join(map(str, labels))} {' '.join(pairs)}")
    return "".join(f"{line}\n" for line in lines).encode()


@st.composite
def any_chunks(draw: st.DrawFn) -> bytes:
    """Return lines put together from usual, unusual and wrong pieces."""
    lines = []
    for _ in range(draw(st.integers(0, 4))):
        labels = ",".join(draw(st.lists(index_texts, max_size=3)))
        pairs = draw(st.lists(st.tuples(index_texts, value_texts), max_size=4))
        features = "".join(draw(blanks) + f"{index}:{value}" for index, value in pairs)
        lines.append(labels + features + draw(st.sampled_from(["", "", " ", "\r"])))
    return ("\n".join(lines) + draw(st.sampled_from(["\n", "\n", ""]))).encode()


@st.composite
def mutated_chunks(draw: st.DrawFn) -> bytes:
    """Return canonical lines with a few bytes overwritten, inserted or removed."""
    chunk = bytearray(draw(canonical_chunks()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(chunk)))
        replacement = draw(st.sampled_from([bytes([c]) for c in b"0123456789 ,:.\n-+eE\t\r#_x\xff"] + [b""]))
        chunk[at : at + draw(st.integers(0, 2))] = replacement
    return bytes(chunk)


def outcome(chunk: bytes, parser: Callable[..., Rows], bounds: tuple[int | None, int | None]) -> object:
    try:
        rows = parser(chunk, "f", 1, *bounds)
    except DataError as error:
        return str(error)
    return [(part.dtype, part.tolist()) for part in (rows.label_ptr, rows.labels, rows.feature_ptr, rows.features)] + [
        rows.values.view(np.uint32).tolist()
    ]


@settings(max_examples=400, deadline=None)
@given(st.one_of(any_chunks(), mutated_chunks()), st.sampled_from([(None, None), (20, 25), (10**9, 10**9)]))
@example(b"", (None, None))
@example(b"\n", (None, None))
@example(b" \n1\n", (None, None))
@example(b"1,2", (None, None))
@example(b"3:1.5 4:2\n", (None, None))
@example(b"2,1 4:2 3:1\n", (None, None))
@example(b"1,1 4:2\n", (None, None))
@example(b"1 4:2 4:3\n", (None, None))
@example(b"1, 4:2\n", (None, None))
@example(b"1 :2\n", (None, None))
@example(b"1 2:3:4\n", (None, None))
@example(b"1 2:3.4.5\n", (None, None))
@example(b"1 2:1e5.3\n", (None, None))
@example(b" 3,4 1:2\n", (None, None))
@example(b"1 1:-0 2:-0.5 3:--5 4:-.5\n", (None, None))
@example(b"1 1:-0 2:-0.5 3:-1e-3 4:-12345678901234567.5\n", (None, None))
@example(b"1 1:-\n", (None, None))
def test_fast_and_slow_parser_agree_on_every_chunk(chunk: bytes, bounds: tuple[int | None, int | None]) -> None:
    assert outcome(chunk, parse, bounds) == outcome(chunk, parse_slowly, bounds)


@settings(max_examples=100, deadline=None)
@given(canonical_chunks())
def test_canonical_chunks_never_need_the_slow_parser(chunk: bytes) -> None:
    rows = _parse_fast(chunk)
    assert rows is not None
    assert outcome(chunk, parse, (None, None)) == outcome(chunk, parse_slowly, (None, None))


@pytest.mark.parametrize("text", ["-0.5", "1e-05", "2.5E+3", "0.08298000693321228", "123456789.123456789", "+7"])
def test_signs_exponents_and_long_decimals_are_fast_and_round_as_float_does(text: str) -> None:
    rows = _parse_fast(f"1 2:{text} 5:0.25\n".encode())
    assert rows is not None
    assert rows.values.tolist() == [np.float32(float(text)), 0.25]


@given(st.lists(floats, max_size=20))
def test_shortest_decimals_read_back_as_the_same_numbers(values: list[float]) -> None:
    array = np.array(values, np.float32)
    assert np.array([float(text) for text in shortest(array)]).astype(np.float32).tolist() == array.tolist()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("40 1:1", r"^f:7: label 40 is not below L = 30\.$"),
        ("4 50:1", r"^f:7: feature 50 is not below d = 50\.$"),
        ("-4 5:1", r"^f:7: label -4 is negative\.$"),
        ("4 -5:1", r"^f:7: feature -5 is negative\.$"),
        ("4.0 5:1", r"^f:7: label '4\.0' is not an integer\.$"),
        ("sport 5:1", r"^f:7: label 'sport' is not an integer\.$"),
        ("4,,5 5:1", r"^f:7: label '' is not an integer\.$"),
        ("4 5.5:1", r"^f:7: feature '5\.5' is not an integer\.$"),
        ("4 5:red", r"^f:7: value 'red' of feature 5 is not a number\.$"),
        ("4 5:", r"^f:7: value '' of feature 5 is not a number\.$"),
        ("4 5:1_0", r"^f:7: value '1_0' of feature 5 is not a number\.$"),
        ("4 5:nan", r"^f:7: value nan of feature 5 is not a finite float32 number\.$"),
        ("4 5:-inf", r"^f:7: value -inf of feature 5 is not a finite float32 number\.$"),
        ("4 5:1e39", r"^f:7: value 1e39 of feature 5 is not a finite float32 number\.$"),
        ("4 5:1 5:1", r"^f:7: feature 5 is given twice\.$"),
        ("4,3,4 5:1", r"^f:7: label 4 is given twice\.$"),
        ("4 5", r"^f:7: '5' is not feature:value\.$"),
        (" 4,5 5:1", r"^f:7: '4,5' is not feature:value\.$"),
        ("9" * 25 + " 5:1", r"^f:7: label 9{25} is too large\.$"),
        ("4 5:" + "x" * 50, r"^f:7: value 'x{40}…' of feature 5 is not a number\.$"),
    ],
)
def test_a_bad_row_is_named_with_file_line_and_value(line: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        parse(f"1 2:3\n{line}\n2 3:4\n".encode(), "f", 6, 50, 30)


def test_unusual_but_legal_rows_are_accepted() -> None:
    rows = parse(b"+1,02\t+3:1e0  1:.5 \r\n\r\n7\n", "f", 1)
    assert rows.labels.tolist() == [1, 2, 7]
    assert rows.label_ptr.tolist() == [0, 2, 2, 3]
    assert rows.features.tolist() == [1, 3]
    assert rows.values.tolist() == [0.5, 1.0]
