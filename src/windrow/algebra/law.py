"""Laws: what may be done with the states of an aggregate, and so how it can be maintained.

    GROUP     combine is invertible: what leaves is subtracted
    LATTICE   idempotent, not invertible
    ORDER     the best k by an order
    MONOID    mergeable only: sketches
    BASIC     needs every value

A function declares its law; its maintenance depends on the law, never on the function's name.
"""

from __future__ import annotations

from enum import Enum


class Law(Enum):
    GROUP = "group"
    LATTICE = "lattice"
    ORDER = "bounded order"
    MONOID = "monoid"
    BASIC = "basic"

    @property
    def invertible(self) -> bool:
        """Whether states take retractions: negative diffs, and states that are subtracted."""
        return self is Law.GROUP

    @property
    def bounded(self) -> bool:
        """Whether a part of the values is enough, so that a state can be smaller than they are."""
        return self is not Law.BASIC

    def refusal(self, name: str) -> str:
        """Why states of the function `name` take no retraction, and what to do instead."""
        needs = "the values that remain" if self.bounded else "every value that remains"
        return (
            f"states of {name} (class {self.value}) cannot be subtracted; rebuild them from {needs}"
        )
