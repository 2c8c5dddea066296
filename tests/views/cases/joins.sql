-- Joins of every kind. t.k and u.k have NULLs and repeat on both sides.

-- inner_join: t, u
SELECT t.id, t.k, u.w FROM t JOIN u ON t.k = u.k

-- inner_join_two_keys: t, u
SELECT t.id, u.label FROM t JOIN u ON t.k = u.k AND t.g = u.g

-- inner_join_expression: t, u
SELECT t.id, u.w FROM t JOIN u ON t.k + 1 = u.w * 2

-- inner_join_casts: t, u
SELECT t.id, t.n, u.w FROM t JOIN u ON t.n = u.w

-- inner_join_mixed: t, u
SELECT t.id, u.w, u.k FROM t JOIN u ON t.k = u.k AND t.n > u.w

-- inner_join_residual_or: t, u
SELECT t.id, u.w FROM t JOIN u ON t.k = u.k AND (t.b OR u.w > 1)

-- inner_join_not_equal: nums, edges
SELECT v, src, dst FROM nums JOIN edges ON v < src

-- inner_join_range: t, u
SELECT t.id, u.day FROM t JOIN u ON t.day BETWEEN u.day AND u.day + INTERVAL 1 DAY

-- inner_join_null_safe: t, u
SELECT t.id, t.k, u.k AS uk, u.w FROM t JOIN u ON t.k <=> u.k

-- inner_join_null_safe_two: t, u
SELECT t.id, u.label FROM t JOIN u ON t.k <=> u.k AND t.g <=> u.g AND t.day >= u.day

-- inner_join_doubles: t, u
SELECT t.id, t.x, u.x AS ux FROM t JOIN u ON t.x = u.x

-- inner_join_dates: t, u
SELECT t.id, t.day, u.w FROM t JOIN u USING (day)

-- inner_join_filters: t, u
SELECT t.id, u.w FROM t JOIN u ON t.k = u.k WHERE t.n > 0 AND u.w < 7 AND t.g <> u.g

-- inner_join_collated: t, u
SELECT t.id, u.w FROM t JOIN u ON t.g COLLATE UTF8_LCASE = u.g COLLATE UTF8_LCASE

-- inner_join_or: t, u
SELECT t.id, u.w FROM t JOIN u ON t.k = u.k OR t.g = u.g

-- left_join: t, u
SELECT t.id, t.k, u.w, u.label FROM t LEFT JOIN u ON t.k = u.k

-- left_join_condition_left: t, u
SELECT t.id, t.n, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.n > 1

-- left_join_condition_right: t, u
SELECT t.id, u.w FROM t LEFT JOIN u ON t.k = u.k AND u.w > 0

-- left_join_residual: t, u
SELECT t.id, t.n, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.n <= u.w

-- left_join_unmatched: t, u
SELECT t.id, t.k FROM t LEFT JOIN u ON t.k = u.k WHERE u.k IS NULL

-- left_join_not_equal: nums, edges
SELECT v, r, src, dst FROM nums LEFT JOIN edges ON v > src AND r = cost

-- left_join_only_inequality: nums, edges
SELECT v, src FROM nums LEFT JOIN edges ON v > src + 1

-- left_join_null_safe: t, u
SELECT t.id, u.w FROM t LEFT JOIN u ON t.g <=> u.g AND t.k <=> u.k

-- left_join_true: nums, edges
SELECT v, src FROM nums LEFT JOIN edges ON true

-- left_join_aggregated: t, u
SELECT t.id, s.total FROM t LEFT JOIN (SELECT k, sum(w) AS total FROM u GROUP BY k) s ON t.k = s.k

-- right_join: t, u
SELECT t.id, u.k, u.w FROM t RIGHT JOIN u ON t.k = u.k

-- right_join_residual: t, u
SELECT t.id, t.n, u.k, u.w FROM t RIGHT JOIN u ON t.k = u.k AND t.n < u.w

-- full_join: t, u
SELECT t.id, t.k, u.k AS uk, u.w FROM t FULL JOIN u ON t.k = u.k

-- full_join_residual: t, u
SELECT t.id, t.n, u.w FROM t FULL JOIN u ON t.k = u.k AND t.n > u.w

-- full_join_using: nums, edges
SELECT * FROM nums AS a(src, r) FULL JOIN edges USING (src)

-- full_join_not_equal: nums, edges
SELECT v, src FROM nums FULL JOIN edges ON v = src + 1 AND r <> cost

-- full_join_only_inequality: nums, edges
SELECT v, src FROM nums FULL JOIN edges ON v > src + 2

-- cross_join: nums, edges
SELECT v, src, dst FROM nums CROSS JOIN edges

-- cross_join_comma: nums, edges
SELECT v, src FROM nums, edges WHERE v + src > 4

-- semi_join: t, u
SELECT id, k FROM t LEFT SEMI JOIN u ON t.k = u.k

-- semi_join_residual: t, u
SELECT id, k, n FROM t LEFT SEMI JOIN u ON t.k = u.k AND t.n > u.w

-- anti_join: t, u
SELECT id, k FROM t LEFT ANTI JOIN u ON t.k = u.k

-- anti_join_residual: t, u
SELECT id, k, n FROM t LEFT ANTI JOIN u ON t.k = u.k AND t.n > u.w

-- anti_join_inequality: nums, edges
SELECT v FROM nums LEFT ANTI JOIN edges ON v > dst

-- semi_join_inequality: nums, edges
SELECT v FROM nums LEFT SEMI JOIN edges ON v < dst

-- natural_join: nums, edges
SELECT * FROM (SELECT v AS src, r AS cost FROM nums) NATURAL JOIN edges

-- natural_left_join: nums, edges
SELECT * FROM (SELECT v AS src, r AS cost FROM nums) NATURAL LEFT JOIN edges

-- using_two: t, u
SELECT k, g, id, w FROM t JOIN u USING (k, g)

-- self_join: edges
SELECT a.src, a.dst, b.dst AS next FROM edges a JOIN edges b ON a.dst = b.src

-- self_join_same_key: edges
SELECT a.dst, b.dst AS other FROM edges a JOIN edges b ON a.src = b.src

-- self_join_pairs: edges
SELECT a.src, a.dst, b.dst AS other FROM edges a JOIN edges b ON a.src = b.src AND a.dst < b.dst

-- self_left_join: edges
SELECT a.src, a.dst, b.dst AS next FROM edges a LEFT JOIN edges b ON a.dst = b.src AND b.cost < a.cost

-- self_anti_join: edges
SELECT a.* FROM edges a LEFT ANTI JOIN edges b ON a.dst = b.src

-- self_full_join: edges
SELECT a.src, b.dst FROM edges a FULL JOIN edges b ON a.dst = b.src AND a.cost = b.cost

-- triangles: edges
SELECT a.src AS x, b.src AS y, c.src AS z
FROM edges a JOIN edges b ON a.dst = b.src JOIN edges c ON b.dst = c.src AND c.dst = a.src

-- three_way: t, u, nums
SELECT t.id, u.w, nums.r FROM t JOIN u ON t.k = u.k JOIN nums ON u.w = nums.v

-- four_way: t, u, nums, edges
SELECT t.id, u.label, e.dst, n.r
FROM t JOIN u ON t.k = u.k JOIN edges e ON e.src = u.k JOIN nums n ON n.v = e.dst

-- star_join: t, u, nums, docs
SELECT t.id, u.w, n.r, d.tiny
FROM t JOIN u ON t.k = u.k JOIN nums n ON n.v = t.k JOIN docs d ON d.id = t.id

-- left_chain: t, u, nums
SELECT t.id, u.w, nums.r FROM t LEFT JOIN u ON t.k = u.k LEFT JOIN nums ON u.w = nums.v

-- inner_then_left: t, u, nums
SELECT t.id, u.w, nums.r FROM t JOIN u ON t.k = u.k LEFT JOIN nums ON nums.v = t.k AND nums.r = u.w

-- left_of_inner: t, u, nums
SELECT t.id, s.w, s.r FROM t LEFT JOIN (SELECT u.k, u.w, nums.r FROM u JOIN nums ON u.w = nums.v) s
ON t.k = s.k

-- full_chain: t, u, nums
SELECT t.id, u.w, nums.r FROM t FULL JOIN u ON t.k = u.k FULL JOIN nums ON nums.v = u.w

-- join_of_distinct: t, u
SELECT a.k, b.w FROM (SELECT DISTINCT k FROM t) a JOIN (SELECT DISTINCT k, w FROM u) b ON a.k = b.k

-- join_of_groups: t, u
SELECT a.k, a.c, b.s FROM (SELECT k, count(*) AS c FROM t GROUP BY k) a
FULL JOIN (SELECT k, sum(w) AS s FROM u GROUP BY k) b ON a.k = b.k

-- join_on_struct: t, u
SELECT t.id, u.w FROM t JOIN u ON struct(t.k, t.g) = struct(u.k, u.g)

-- join_on_array: docs
SELECT a.id, b.id AS other FROM docs a JOIN docs b ON a.tags = b.tags AND a.id < b.id

-- join_constant_false: t, u
SELECT t.id, u.w FROM t LEFT JOIN u ON false

-- join_values: t
SELECT t.id, v.name FROM t JOIN (VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (NULL, 'none')) AS v(k, name)
ON t.k = v.k

-- left_join_values: t
SELECT v.k, t.id FROM (VALUES (1), (2), (9), (NULL)) AS v(k) LEFT JOIN t ON t.k = v.k

-- join_hint: t, u
SELECT /*+ BROADCAST(u) */ t.id, u.w FROM t JOIN u ON t.k = u.k

-- join_then_group: t, u
SELECT u.label, count(*) AS c, sum(t.n) AS s, min(t.day) AS first FROM t JOIN u ON t.k = u.k
GROUP BY u.label

-- left_join_coalesced_key: t, u
SELECT coalesce(t.k, u.k) AS key, count(t.id) AS c, count(u.w) AS e FROM t FULL JOIN u ON t.k = u.k
GROUP BY coalesce(t.k, u.k)

-- join_one_key_twice: t, u
SELECT t.id, u.label FROM t JOIN u ON t.k = u.k AND t.n = u.k

-- left_join_one_key_twice: t, u
SELECT t.id, u.label FROM t LEFT JOIN u ON t.k = u.k AND t.k = u.w

-- full_join_one_key_twice: t, u
SELECT t.id, u.label FROM t FULL JOIN u ON t.k = u.w AND t.n = u.w

-- anti_join_one_key_twice: t, u
SELECT t.id FROM t LEFT ANTI JOIN u ON t.k = u.k AND t.k = u.w

-- join_on_collated_within: t, u
SELECT a.id, b.w FROM (SELECT id, k, g COLLATE UTF8_LCASE AS s FROM t) a
LEFT JOIN (SELECT w, k, g COLLATE UTF8_LCASE AS s FROM u) b ON a.k = b.k AND struct(a.s) = struct(b.s)

-- Joins of which no column is used: rows are counted all the same.

-- no_columns_cross: t, u
SELECT 1 AS one FROM t CROSS JOIN u

-- no_columns_three: t, u, nums
SELECT 1 AS one FROM t CROSS JOIN u CROSS JOIN nums WHERE nums.v > 1

-- no_columns_counted: t, u, nums
SELECT count(*) AS n FROM t CROSS JOIN u CROSS JOIN nums

-- no_columns_left: t, u
SELECT 1 AS one FROM t LEFT JOIN u ON true

-- no_columns_full: t, u
SELECT 1 AS one FROM (SELECT * FROM t WHERE n > 1) AS a FULL JOIN (SELECT * FROM u WHERE w > 1) AS b ON true

-- no_columns_some: t, u, nums
SELECT t.id FROM t CROSS JOIN u LEFT JOIN nums ON true

-- no_columns_semi: t, u
SELECT 1 AS one FROM t WHERE EXISTS (SELECT 1 FROM u WHERE w > 2)

-- no_columns_anti: t, u
SELECT 1 AS one FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE w > 2)

-- no_columns_lateral: t, u
SELECT 1 AS one FROM (SELECT 1 FROM t) AS a LEFT JOIN LATERAL (SELECT w FROM u ORDER BY w, k, g LIMIT 2) AS b ON true

-- no_columns_of_a_view: t, left_join
SELECT 1 AS one FROM (SELECT 1 FROM t) AS a LEFT JOIN left_join ON true

-- no_columns_except: t, nums
SELECT 1 AS one FROM t LEFT JOIN nums ON true EXCEPT SELECT v FROM nums
