-- ORDER BY ... LIMIT ... OFFSET, and the best of each group. Ties are broken by the whole row.

-- top_three: t
SELECT n, id, g FROM t ORDER BY n DESC, id, g LIMIT 3

-- top_one: t
SELECT id, k FROM t ORDER BY k DESC NULLS LAST, id DESC LIMIT 1

-- bottom_nulls_first: t
SELECT k, id FROM t ORDER BY k NULLS FIRST, id NULLS LAST LIMIT 5

-- top_of_few: nums
SELECT v, r FROM nums ORDER BY v, r LIMIT 100

-- top_none: nums
SELECT v FROM nums ORDER BY v LIMIT 0

-- offset_within: t
SELECT id, n FROM t ORDER BY id, n LIMIT 4 OFFSET 3

-- offset_past_the_end: nums
SELECT v, r FROM nums ORDER BY v, r LIMIT 3 OFFSET 50

-- offset_only: nums
SELECT v, r FROM nums ORDER BY v DESC, r OFFSET 2

-- top_by_double: t
SELECT x, id FROM t ORDER BY x DESC, id LIMIT 4

-- top_by_expression: t
SELECT id, n FROM t ORDER BY abs(n) DESC NULLS LAST, n, id LIMIT 3

-- top_of_groups: t
SELECT k, count(*) AS c FROM t GROUP BY k ORDER BY c DESC, k LIMIT 2

-- top_of_distinct: t
SELECT DISTINCT g FROM t ORDER BY g DESC LIMIT 2

-- top_of_join: t, u
SELECT t.id, u.w, u.label FROM t JOIN u ON t.k = u.k ORDER BY u.w DESC, t.id, u.label LIMIT 5

-- top_of_union: t, u
SELECT k FROM t UNION ALL SELECT k FROM u ORDER BY k DESC NULLS LAST LIMIT 6

-- top_of_top: t
SELECT id, n FROM (SELECT id, n FROM t ORDER BY n DESC, id LIMIT 6) ORDER BY id, n LIMIT 2

-- sum_of_top: t
SELECT count(*) AS c, sum(n) AS s FROM (SELECT n, id FROM t ORDER BY n, id LIMIT 5)

-- join_with_top: t, u
SELECT t.id, s.w FROM t JOIN (SELECT k, w FROM u ORDER BY w DESC, k LIMIT 4) s ON t.k = s.k

-- in_top: t, u
SELECT id FROM t WHERE k IN (SELECT k FROM u ORDER BY w DESC, k LIMIT 2)

-- top_per_group_row_number: t
SELECT k, n, id FROM (SELECT k, n, id, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS r FROM t) WHERE r <= 2

-- top_per_group_with_number: t
SELECT * FROM (SELECT k, n, id, row_number() OVER (PARTITION BY k ORDER BY n, id) AS r FROM t) WHERE r <= 3

-- top_one_per_group: t
SELECT g, day, id FROM (SELECT g, day, id, row_number() OVER (PARTITION BY g ORDER BY day DESC NULLS LAST, id) AS r FROM t) WHERE r = 1

-- second_per_group: t
SELECT k, id FROM (SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM (SELECT k, id FROM t)) WHERE r = 2

-- rank_per_group: t
SELECT id, k, n, r FROM (SELECT id, k, n, rank() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM t) WHERE r <= 2

-- dense_rank_per_group: t
SELECT id, k, n FROM (SELECT id, k, n, dense_rank() OVER (PARTITION BY k ORDER BY n) AS r FROM t) WHERE r < 3

-- rank_without_group: t
SELECT id, n FROM (SELECT id, n, rank() OVER (ORDER BY n DESC) AS r FROM t) WHERE r <= 3

-- row_number_without_group: t
SELECT id, n FROM (SELECT id, n, row_number() OVER (ORDER BY id, n) AS r FROM (SELECT id, n FROM t)) WHERE r <= 4

-- between_ranks: t
SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM (SELECT id, k FROM t)) WHERE r BETWEEN 2 AND 3

-- top_per_group_lateral: t, u
SELECT a.k, s.id, s.n FROM (SELECT DISTINCT k FROM u) a,
LATERAL (SELECT id, n FROM t WHERE t.k = a.k ORDER BY n DESC, id LIMIT 2) s

-- top_per_group_of_groups: t
SELECT k, g, c FROM (SELECT k, g, count(*) AS c, rank() OVER (PARTITION BY k ORDER BY count(*) DESC, g) AS r FROM t GROUP BY k, g) WHERE r <= 2

-- top_two_rankings: t
SELECT id, k, n, g FROM (SELECT id, k, n, g, rank() OVER (PARTITION BY k ORDER BY n) AS a, rank() OVER (PARTITION BY g ORDER BY id) AS b FROM t)
WHERE a <= 2 AND b <= 3

-- latest_then_sum: t
SELECT g, sum(n) AS s FROM (SELECT g, n, row_number() OVER (PARTITION BY g, k ORDER BY ts DESC NULLS LAST, id, n) AS r FROM t) WHERE r = 1 GROUP BY g

-- qualify (since 4.3): t
SELECT id, k, n FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC, id) = 1

-- top_with_structs: docs
SELECT id, st, tags FROM docs ORDER BY id % 3 LIMIT 4

-- numbered_structs: t
SELECT id, row_number() OVER (PARTITION BY g ORDER BY n, id, struct(x)) AS r, struct(k, struct(n)) AS s FROM t
