"""The tree that the paths of a join follow."""

from __future__ import annotations

from windrow.views.plan.graph import Edge, Equality, tree, walk


def equal(left: int, a: str, right: int, b: str) -> Equality:
    return Equality(left, a, right, b, f"{a} = {b}", True)


def column(key: str) -> int | None:
    return None if "(" in key else hash(key)


def shape(edges: list[Edge]) -> list[tuple[int, int, list[str]]]:
    return [(one.left, one.right, [e.condition for e in one.equalities]) for one in edges]


def test_an_edge_has_all_equalities_between_two_inputs() -> None:
    edges, rest = tree(2, [equal(0, "a", 1, "x"), equal(1, "y", 0, "b")], column)
    assert shape(edges) == [(0, 1, ["a = x", "y = b"])]
    assert rest == []


def test_a_column_is_part_of_a_key_once() -> None:
    edges, rest = tree(2, [equal(0, "a", 1, "x"), equal(0, "a", 1, "y")], column)
    assert shape(edges) == [(0, 1, ["a = x"])]
    assert [one.condition for one in rest] == ["a = y"]
    # What is computed is a column of its own each time.
    edges, rest = tree(2, [equal(0, "f(a)", 1, "x"), equal(0, "f(a)", 1, "y")], column)
    assert shape(edges) == [(0, 1, ["f(a) = x", "f(a) = y"])]
    assert rest == []


def test_a_circle_is_cut_where_equalities_are_fewest() -> None:
    circle = [
        equal(0, "a", 1, "x"),
        equal(1, "y", 2, "p"),
        equal(0, "b", 2, "q"),
        equal(0, "c", 2, "r"),
    ]
    edges, rest = tree(3, circle, column)
    assert shape(edges) == [(0, 2, ["b = q", "c = r"]), (0, 1, ["a = x"])]
    assert [one.condition for one in rest] == ["y = p"]


def test_what_no_equality_connects_meets_all_rows() -> None:
    edges, _ = tree(4, [equal(2, "a", 3, "x")], column)
    assert shape(edges) == [(2, 3, ["a = x"]), (0, 1, []), (0, 2, [])]
    assert [(source, edge.other(source)) for source, edge in walk(0, edges)] == [
        (0, 1),
        (0, 2),
        (2, 3),
    ]


def test_paths_follow_keys_first() -> None:
    edges, _ = tree(4, [equal(0, "a", 2, "x"), equal(2, "y", 3, "p")], column)
    assert shape(edges)[-1] == (0, 1, [])
    for start in range(4):
        path = [edge.other(source) for source, edge in walk(start, edges)]
        assert sorted([start, *path]) == [0, 1, 2, 3]
        if start != 1:
            assert path[-1] == 1
