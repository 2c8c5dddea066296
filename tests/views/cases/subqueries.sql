-- Subqueries: scalar, IN, EXISTS, correlated or not, and LATERAL.

-- scalar: t
SELECT id, n FROM t WHERE n >= (SELECT avg(n) FROM t WHERE n < 1000)

-- scalar_selected: t, u
SELECT id, (SELECT max(w) FROM u) AS m FROM t

-- scalar_empty: nums
SELECT v, (SELECT max(v) FROM nums WHERE v > 100) AS m FROM nums

-- scalar_twice: t, u
SELECT id, n - (SELECT min(w) FROM u) AS a, (SELECT min(w) FROM u) + (SELECT count(*) FROM t) AS c FROM t

-- scalar_in_having: t, u
SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) > (SELECT count(*) / 4 FROM u)

-- scalar_nested: t, u
SELECT id FROM t WHERE k = (SELECT max(k) FROM u WHERE w = (SELECT min(w) FROM u))

-- scalar_in_aggregate: t, u
SELECT k, sum(n + (SELECT max(w) FROM u)) AS s FROM t GROUP BY k

-- scalar_in_case: t, nums
SELECT id, CASE WHEN (SELECT count(*) FROM nums) > 4 THEN k ELSE -k END AS a FROM t

-- scalar_in_join: t, u, nums
SELECT t.id, u.w FROM t JOIN u ON t.k = u.k AND u.w > (SELECT min(v) FROM nums)

-- scalar_correlated: t, u
SELECT id, k, (SELECT max(w) FROM u WHERE u.k = t.k) AS m FROM t

-- scalar_correlated_count: t, u
SELECT id, (SELECT count(*) FROM u WHERE u.k = t.k AND u.w > 0) AS c FROM t

-- scalar_correlated_sum_expression: t, u
SELECT id, coalesce((SELECT sum(w) + 1 FROM u WHERE u.k = t.k), -1) AS s FROM t

-- scalar_correlated_where: t, u
SELECT id, n FROM t WHERE n > (SELECT avg(w) FROM u WHERE u.k = t.k)

-- scalar_correlated_self: t
SELECT id, k, n FROM t WHERE n = (SELECT max(n) FROM t o WHERE o.k = t.k)

-- scalar_correlated_two: t, u
SELECT id, (SELECT min(day) FROM u WHERE u.k = t.k AND u.g = t.g) AS day FROM t

-- scalar_correlated_inequality: t, u
SELECT id, (SELECT count(*) FROM u WHERE u.w < t.n) AS c FROM t

-- scalar_correlated_limit: t, u
SELECT id, (SELECT w FROM u WHERE u.k = t.k ORDER BY w DESC NULLS LAST LIMIT 1) AS w FROM t

-- scalar_one_row: nums
SELECT v, (SELECT 5) AS five FROM nums

-- in_subquery: t, u
SELECT id, k FROM t WHERE k IN (SELECT k FROM u)

-- in_subquery_filtered: t, u
SELECT id, k FROM t WHERE k IN (SELECT k FROM u WHERE w > 1) AND n > 0

-- in_two_columns: t, u
SELECT id FROM t WHERE (k, g) IN (SELECT k, g FROM u)

-- in_correlated: t, u
SELECT id FROM t WHERE k IN (SELECT u.k FROM u WHERE u.g = t.g)

-- in_or: t, u
SELECT id, k FROM t WHERE k IN (SELECT k FROM u WHERE w = 0) OR n = 3

-- in_selected: t, u
SELECT id, k IN (SELECT k FROM u WHERE k IS NOT NULL) AS there FROM t WHERE k IS NOT NULL

-- in_case: t, u
SELECT id, CASE WHEN k IN (SELECT k FROM u) THEN 'yes' ELSE 'no' END AS a FROM t

-- in_grouped: t, u
SELECT id FROM t WHERE k IN (SELECT k FROM u GROUP BY k HAVING count(*) > 1)

-- not_in: t, u
SELECT id, k FROM t WHERE k NOT IN (SELECT k FROM u)

-- not_in_without_nulls: t, u
SELECT id, k FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)

-- not_in_sometimes_empty: t, nums
SELECT id, k FROM t WHERE k NOT IN (SELECT v FROM nums WHERE r = 2)

-- not_in_null_arrives: nums
SELECT v FROM nums WHERE v NOT IN (SELECT r FROM nums)

-- not_in_two_columns: edges
SELECT src, dst FROM edges WHERE (src, dst) NOT IN (SELECT dst, src FROM edges WHERE cost = 1)

-- not_in_correlated: t, u
SELECT id, k FROM t WHERE k NOT IN (SELECT u.w FROM u WHERE u.g = t.g)

-- not_in_or: t, u
SELECT id FROM t WHERE k NOT IN (SELECT w FROM u WHERE w IS NOT NULL) OR b

-- exists_uncorrelated: t, nums
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM nums WHERE v > 2)

-- exists_correlated: t, u
SELECT id, k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)

-- exists_residual: t, u
SELECT id, n FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w <> t.n)

-- exists_inequality: nums, edges
SELECT v FROM nums WHERE EXISTS (SELECT 1 FROM edges WHERE edges.src > nums.v)

-- exists_or: t, u
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w = 1) OR n > 5

-- exists_two: t, u, nums
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)
AND NOT EXISTS (SELECT 1 FROM nums WHERE nums.v = t.k)

-- exists_selected: t, u
SELECT id, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) AS there FROM t

-- exists_aggregated: t, u
SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.k = t.k HAVING count(*) > 1)

-- not_exists: t, u
SELECT id, k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)

-- not_exists_residual: t, u
SELECT id, n FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > t.n)

-- not_exists_uncorrelated: t, nums
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM nums)

-- not_exists_self: edges
SELECT src, dst FROM edges a WHERE NOT EXISTS (SELECT 1 FROM edges b WHERE b.src = a.src AND b.cost < a.cost)

-- subquery_in_subquery: t, u, nums
SELECT id FROM t WHERE k IN (SELECT k FROM u WHERE EXISTS (SELECT 1 FROM nums WHERE nums.v = u.w))

-- quantified_like_any: t
SELECT id, g FROM t WHERE g LIKE ANY ('a%', 'B')

-- lateral_join: t, u
SELECT t.id, s.w, s.twice FROM t, LATERAL (SELECT u.w, u.w * 2 AS twice FROM u WHERE u.k = t.k) s

-- lateral_left_join: t, u
SELECT t.id, s.w FROM t LEFT JOIN LATERAL (SELECT w FROM u WHERE u.k = t.k AND u.w > 0) s ON true

-- lateral_aggregate: t, u
SELECT t.id, s.c, s.m FROM t, LATERAL (SELECT count(*) AS c, max(w) AS m FROM u WHERE u.k = t.k) s

-- lateral_limit: t, u
SELECT t.id, s.w, s.label FROM (SELECT DISTINCT id, k FROM t) t,
LATERAL (SELECT w, label FROM u WHERE u.k = t.k ORDER BY w DESC, label LIMIT 2) s

-- lateral_expression: t
SELECT t.id, s.y, s.z FROM t, LATERAL (SELECT k + 1 AS y, n * 2 AS z) s

-- lateral_of_lateral: t, u
SELECT t.id, c.z FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k) a, LATERAL (SELECT a.w + t.id AS z) c

-- lateral_nested_limit: u, edges
SELECT a.label, s.dst FROM (SELECT DISTINCT k, label FROM u) a
LEFT JOIN LATERAL (SELECT dst FROM edges WHERE src = a.k ORDER BY dst LIMIT 1) s ON true

-- scalar_in_left_join: t, u, nums
SELECT t.id, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.n > (SELECT min(v) FROM nums)

-- scalar_in_full_join: t, u, nums
SELECT t.id, u.w FROM t FULL JOIN u ON t.k = u.k AND t.n + u.w > (SELECT min(v) FROM nums)

-- scalar_in_generator: docs, nums
SELECT id, explode(array_append(xs, (SELECT max(v) FROM nums))) AS e FROM docs

-- scalar_in_order: t, nums
SELECT id, n FROM t ORDER BY abs(n - (SELECT max(v) FROM nums)), id, n LIMIT 4

-- scalar_limit: t, u
SELECT id, (SELECT label FROM u WHERE u.k = t.k ORDER BY w DESC, label LIMIT 1) AS l FROM t

-- scalar_distinct: t, u
SELECT id, (SELECT count(DISTINCT coalesce(label, '-')) FROM u WHERE u.k = t.k) AS c FROM t

-- exists_in_aggregate: t, u
SELECT k, count_if(EXISTS (SELECT 1 FROM u WHERE u.k = t.k)) AS c FROM t GROUP BY k

-- lateral_window: t, u
SELECT t.id, s.r FROM (SELECT DISTINCT id, k FROM t) t, LATERAL (SELECT rank() OVER (ORDER BY w) AS r FROM u WHERE u.k = t.k) s
