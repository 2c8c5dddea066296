"""Every function that is declared keeps its law."""

from __future__ import annotations

import laws
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import function
from windrow.algebra.functions import FUNCTIONS


@pytest.mark.parametrize("check", laws.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_laws(name: str, check: laws.Check, data: st.DataObject) -> None:
    check(function(name, data.draw(st.sampled_from([1, 2, 50]))), data)
