"""The bytes of partial states: what rests in stores is read as what it was, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import function
from state_cases import COLUMNS, columns_of, combined, lifted, rows_of
from strategies import NAN
from windrow import agg
from windrow.algebra.evaluate import states_of
from windrow.algebra.functions import FUNCTIONS
from windrow.algebra.states import States
from windrow.algebra.states.header import FORMAT
from windrow.errors import DataError, DefinitionError


def test_bytes_of_another_kind_are_refused() -> None:
    total = states_of(agg.sum("x"), pa.int64())
    (one,) = total.serialise(lifted(total, [(0, 5)])).to_pylist()

    def refused(data: bytes | None, message: str, by: States = total) -> None:
        with pytest.raises(DataError, match=message):
            by.deserialise(pa.array([one if by is total else data, data], pa.binary()))

    refused(bytes([FORMAT + 1]) + one[1:], "x_sum: a state has format version 3; .* version 2")
    refused(one, "x_max: the bytes are a state of sum or avg", states_of(agg.max("x"), pa.int64()))
    refused(bytes([FORMAT, 200]) + one[2:], "an unknown kind .200")
    refused(one, "another type than double", states_of(agg.sum("x"), pa.float64()))
    refused(b"", "too short")
    refused(None, "NULL")
    refused(one[:-2], "damaged")
    top = states_of(agg.top_k("x", 3), pa.int64())
    more = states_of(agg.top_k("x", 4), pa.int64())
    with pytest.raises(DataError, match="x_top_4: a state was made with another k than 4"):
        more.deserialise(top.serialise(top.empty(1)))


def test_bytes_of_version_1_are_refused() -> None:
    """They counted no rows: what a state of the best k left out cannot be told any more."""
    for one, data in [
        (agg.count("x"), "01 01 00 06"),
        (agg.sum("x"), "01 02 05 04 08 00 00 e7 03"),
    ]:
        with pytest.raises(DataError, match="a state has format version 1; this release reads"):
            states_of(one, pa.int64()).deserialise(pa.array([bytes.fromhex(data)]))


def test_the_bytes_of_version_2() -> None:
    """What rests in stores: these bytes may never read as anything else."""
    golden = [
        (agg.count("x"), pa.int64(), [(0, 7), (0, None), (0, 7)], "02 01 00 02 04"),
        (agg.sum("x"), pa.int64(), [(0, 1000), (0, -1)], "02 02 05 00 04 08 00 00 e7 03"),
        (
            agg.sum("x"),
            pa.float64(),
            [(0, 0.5), (0, NAN)],
            "02 02 07 00 04 02 00 00 08 ff ff 80 00",
        ),
        (agg.bool_or("x"), pa.bool_(), [(0, True), (0, False)], "02 06 01 00 04 02"),
        (agg.last("x"), pa.string(), [(3, "é")], "02 0a 0b 00 02 02 04 c3 a9 06"),
        (agg.top_k("x", 2), pa.int16(), [(0, 1), (0, 2)], "02 0e 03 04 00 04 04 02 00 01 00"),
        (agg.histogram("x"), pa.bool_(), [(0, True)] * 2, "02 12 01 00 04 02 01 04"),
    ]
    for one, type_, rows, data in golden:
        states = states_of(one, type_)
        state = lifted(states, rows)
        assert states.serialise(state)[0].as_py().hex(" ") == data
        assert states.deserialise(pa.array([bytes.fromhex(data)])).equals(state)


def test_codes_are_never_given_twice() -> None:
    """Bytes rest for years: a function that goes leaves its code behind."""
    given = [
        {"count"},
        {"sum", "avg"},
        {"var_pop", "var_samp", "stddev_pop", "stddev_samp"},
        {"skewness"},
        {"kurtosis"},
        {"bool_and", "bool_or"},
        *({name} for name in ("min", "max", "first", "last", "first_k", "last_k")),
        *({name} for name in ("bottom_k", "top_k", "unique_top_k", "bounded_unique_count")),
        {"collect_list"},
        {"unique_count", "histogram"},
        *({name} for name in ("approx_percentile", "approx_unique_count", "approx_frequent_k")),
    ]
    codes = {name: code for code, names in enumerate(given, 1) for name in names}
    for name, declared in FUNCTIONS.items():
        assert declared.code == codes[name] if name in codes else declared.code > len(given)


def test_functions_of_one_code_share_their_states() -> None:
    for name, declared in FUNCTIONS.items():
        for other, like in FUNCTIONS.items():
            for column in columns_of(declared) if declared.code == like.code else []:
                one = States.of(function(name), COLUMNS[column][0])
                assert one.kind == States.of(function(other), COLUMNS[column][0]).kind
    mean, total = states_of(agg.avg("x"), pa.int64()), states_of(agg.sum("x"), pa.int64())
    data = total.serialise(lifted(total, [(0, 5), (0, 8)]))
    assert mean.lower(mean.deserialise(data)).to_pylist() == [6.5]


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_are_states(name: str, data: st.DataObject) -> None:
    """What is not refused is a column of states like any other, and does what these do."""
    column = data.draw(st.sampled_from(columns_of(FUNCTIONS[name])))
    states = States.of(function(name), COLUMNS[column][0])
    rows = data.draw(rows_of(column, 5, nulls=True))
    (one,) = states.serialise(lifted(states, rows)).to_pylist()
    size = len(states.header.written)
    rest = bytearray(one[size:])
    # Sketches are the library's own bytes: damage within them may be values like any other.
    reach = len(rest) if "sketch" not in states.type.names else 2
    for _ in range(data.draw(st.integers(1, 3))):
        rest[data.draw(st.integers(0, reach - 1))] = data.draw(st.integers(0, 255))
    damaged = one[:size] + bytes(rest)
    try:
        read = states.deserialise(pa.array([damaged]))
    except DataError as error:
        assert "the bytes of a state are damaged" in str(error)  # noqa: PT017
        return
    assert read.type == states.type
    read.validate(full=True)
    assert read.null_count == 0
    # It is written and read again as it is; combining puts it into order, once and for all.
    written = states.serialise(read)
    assert states.serialise(states.deserialise(written)).equals(written)
    sorted_ = combined(states, [read])
    assert states.serialise(combined(states, [sorted_])).equals(states.serialise(sorted_))
    assert states.rows(sorted_).tolist() == states.rows(read).tolist()
    if states.invertible:
        assert states.subtract(sorted_, sorted_).equals(states.empty(1))
    try:
        result = states.lower(sorted_)
    except DataError as error:
        assert "more was subtracted" in str(error) or "does not fit" in str(error)  # noqa: PT017
        return
    result.validate(full=True)
    assert result.type == states.function.result(states.value_type)
    (count,) = sorted_.field("count").to_pylist()
    if count == 0:
        assert result.to_pylist() == [states.function.of_nothing]


def test_bytes_that_contradict_themselves_are_refused() -> None:
    """Counts, and what is held of the values, have to agree."""
    for one, type_, data in [
        (agg.max("x"), pa.int16(), "02 08 03 00 02 00"),  # one value, and none is held
        (agg.max("x"), pa.int16(), "02 08 03 00 00 02 05 00"),  # no value, and one is held
        (agg.top_k("x", 2), pa.int16(), "02 0e 03 04 00 06 02 05 00"),  # three, and one is held
        (agg.unique_top_k("x", 2), pa.int16(), "02 0f 03 04 00 02 04 05 00 04 00"),
        (agg.histogram("x"), pa.bool_(), "02 12 01 00 04 02 01 06"),  # two, and three are counted
        (agg.unique_count("x"), pa.bool_(), "02 12 01 00 00 02 01 00"),  # a value no times
        (agg.approx_percentile("x"), pa.int16(), "02 13 03 00 02 00 00"),
        (agg.approx_unique_count("x"), pa.int16(), "02 14 03 00 02 00"),
        (agg.approx_frequent_k("x", 2), pa.int16(), "02 15 03 04 00 02 00"),
    ]:
        with pytest.raises(DataError, match="damaged"):
            states_of(one, type_).deserialise(pa.array([bytes.fromhex(data)]))


def test_states_rest_in_parquet(tmp_path: Any) -> None:
    for name, declared in FUNCTIONS.items():
        for column in columns_of(declared):
            states = States.of(function(name), COLUMNS[column][0])
            rows = list(enumerate([*COLUMNS[column][1], None]))
            made = lifted(states, rows, None, 2)
            pq.write_table(pa.table({"state": made}), tmp_path / "states.parquet")
            back = pq.read_table(tmp_path / "states.parquet").column("state").combine_chunks()
            assert repr(back.to_pylist()) == repr(made.to_pylist())


def test_of_refuses_what_the_function_does_not_take() -> None:
    with pytest.raises(DefinitionError, match="x: sum takes numbers, not string"):
        states_of(agg.sum("x"), pa.string())


PRICES = [19.99, 4.5, 120.0, 7.25, 33.1, 8.99, 64.0, 15.49, 2.75, 99.95]


def test_states_are_compact() -> None:
    """The table of bytes in docs/states.md."""

    def size(name: str, type_: pa.DataType, values: list[Any]) -> int:
        states = States.of(function(name), type_)
        rows = [(1_700_000_000_000, value) for value in values]
        return len(states.serialise(lifted(states, rows))[0].as_py())

    assert size("count", pa.float64(), PRICES) == 5
    assert size("bool_and", pa.bool_(), [True] * 10) == 6
    assert size("sum", pa.int64(), [round(100 * price) for price in PRICES]) == 11
    floats = {"sum": 19, "var_pop": 37, "skewness": 62, "kurtosis": 94, "max": 6 + 8}
    floats |= {"last": 6 + 8 + 6, "top_k": 7 + 2 * 8, "histogram": 6 + 10 * 9}
    for name, expected in floats.items():
        assert size(name, pa.float64(), PRICES) == expected, name
