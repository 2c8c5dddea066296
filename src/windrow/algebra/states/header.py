"""What the bytes of every state begin with, so that no other state is read in its place.

version      1 byte
code         1 byte     of the function, or of those that share its states
type         1 byte     of the values; 0 where it does not matter
parameters   varints    of the kind: k, where the state depends on it
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.codec import varint
from windrow.algebra.registry import names_of
from windrow.errors import DataError

t = pa.types

FORMAT = 2  # the version of the bytes; a reader refuses every other
SHORTEST = 3

_TYPE_CODES: dict[pa.DataType, int] = {
    pa.bool_(): 1,
    pa.int8(): 2,
    pa.int16(): 3,
    pa.int32(): 4,
    pa.int64(): 5,
    pa.float32(): 6,
    pa.float64(): 7,
    pa.date32(): 8,
    pa.timestamp("us", "UTC"): 9,
    pa.timestamp("us"): 10,
    pa.string(): 11,
    pa.binary(): 12,
}
_NESTED, _DECIMAL = 13, 64  # a decimal has 64 + its scale


def _type_code(type_: pa.DataType) -> int:
    if t.is_nested(type_):
        return _NESTED
    if t.is_decimal(type_):
        return _DECIMAL + int(type_.scale)
    return _TYPE_CODES[type_]


@dataclass(frozen=True)
class Header:
    """`value_type` None: the type of the values does not matter."""

    code: int
    value_type: pa.DataType | None
    parameters: tuple[int, ...]

    @property
    def written(self) -> bytes:
        type_code = 0 if self.value_type is None else _type_code(self.value_type)
        return bytes([FORMAT, self.code, type_code]) + b"".join(map(varint, self.parameters))

    def check(self, data: pa.Array) -> None:
        """Raise a DataError unless all of `data` begin with these bytes."""
        if data.null_count:
            raise DataError("the bytes of a state are NULL; leave such rows out")
        expected = self.written
        found = pc.binary_slice(data, 0, len(expected)) if len(data) else data
        wrong = pc.not_equal(found, pa.scalar(expected, pa.binary()))
        at = pc.index(wrong, True).as_py()
        if at >= 0:
            raise DataError(self._difference(found[at].as_py()))

    def _difference(self, found: bytes) -> str:
        if len(found) < SHORTEST:
            return f"{found!r} is too short to be a state"
        if found[0] != FORMAT:
            return (
                f"a state has format version {found[0]}; this release reads version {FORMAT}. "
                "Read it with the release that wrote it, or rebuild the states"
            )
        if found[1] != self.code:
            kind = " or ".join(names_of(found[1])) or f"an unknown kind ({found[1]})"
            return f"the bytes are a state of {kind}"
        if found[2] != self.written[2]:
            return f"a state is over values of another type than {self.value_type}"
        return f"a state was made with another k than {', '.join(map(str, self.parameters))}"
