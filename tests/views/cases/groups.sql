-- GROUP BY in every form, HAVING, FILTER, DISTINCT.

-- count_by_key: t
SELECT k, count(*) AS c FROM t GROUP BY k

-- sums_by_key: t
SELECT k, sum(n) AS s, avg(n) AS a, min(n) AS lo, max(n) AS hi, count(n) AS c FROM t GROUP BY k

-- unnamed_aggregates: t
SELECT g, count(*), sum(n) FROM t GROUP BY g

-- group_by_two: t
SELECT k, g, count(*) AS c FROM t GROUP BY k, g

-- group_by_expression: t
SELECT k % 2 AS odd, upper(g) AS u, count(*) AS c FROM t GROUP BY k % 2, upper(g)

-- group_by_ordinal: t
SELECT day, b, count(*) AS c FROM t GROUP BY 1, 2

-- group_by_alias: t
SELECT coalesce(g, 'none') AS word, max(d) AS m FROM t GROUP BY word

-- group_by_all: t
SELECT k, b, sum(d) AS s FROM t GROUP BY ALL

-- group_by_double: t
SELECT x, count(*) AS c FROM t GROUP BY x

-- group_by_decimal_and_time: t
SELECT d, ts, count(*) AS c, max(local) AS l FROM t GROUP BY d, ts

-- group_by_array: docs
SELECT tags, count(*) AS c FROM docs GROUP BY tags

-- group_by_struct: docs
SELECT st, count(*) AS c, sum(id) AS s FROM docs GROUP BY st

-- A map without NULLs: code that Spark generates to sort a map's entries makes zeros of them.

-- group_by_map: docs
SELECT map_filter(m, (key, value) -> value IS NOT NULL) AS m, count(*) AS c FROM docs
GROUP BY map_filter(m, (key, value) -> value IS NOT NULL)

-- group_by_binary: docs
SELECT bin, tiny, count(*) AS c FROM docs GROUP BY bin, tiny

-- group_by_collated: t
SELECT count(*) AS c, sum(k) AS s FROM t GROUP BY g COLLATE UTF8_LCASE

-- group_by_without_aggregate: t
SELECT k, g FROM t GROUP BY k, g

-- group_by_constant: t
SELECT 'all' AS word, count(*) AS c FROM t GROUP BY 'all'

-- group_key_unused: t
SELECT count(*) AS c, sum(n) AS s FROM t GROUP BY k, b

-- global_aggregate: t
SELECT count(*) AS c, sum(n) AS s, max(x) AS m, avg(d) AS a FROM t

-- global_aggregate_of_nothing: t
SELECT count(*) AS c, count(k) AS k, sum(n) AS s, min(g) AS g FROM t WHERE false

-- global_aggregate_sometimes_empty: nums
SELECT count(*) AS c, sum(v) AS s, max(r) AS m FROM nums

-- expression_of_aggregates: t
SELECT k, sum(n) / count(*) + max(k) AS a, CASE WHEN count(*) > 2 THEN 'many' ELSE 'few' END AS c
FROM t GROUP BY k

-- having_count: t
SELECT g, count(*) AS c FROM t GROUP BY g HAVING count(*) > 3

-- having_other_aggregate: t
SELECT g FROM t GROUP BY g HAVING max(n) > 5 AND count(DISTINCT k) > 1

-- having_without_group: nums
SELECT sum(v) AS s FROM nums HAVING count(*) > 5

-- having_on_key: t
SELECT k, sum(n) AS s FROM t GROUP BY k HAVING k IN (1, 2) OR sum(n) IS NULL

-- filter_clause: t
SELECT k, count(*) FILTER (WHERE b) AS c, sum(n) FILTER (WHERE n > 0) AS s,
  max(g) FILTER (WHERE g <> 'b') AS m, count(*) AS everything
FROM t GROUP BY k

-- filter_distinct: t
SELECT g, count(DISTINCT k) FILTER (WHERE n > 0) AS c, sum(DISTINCT n) FILTER (WHERE b) AS s
FROM t GROUP BY g

-- rollup: t
SELECT k, g, count(*) AS c, sum(n) AS s FROM t GROUP BY ROLLUP (k, g)

-- rollup_grouping: t
SELECT k, b, grouping(k) AS gk, grouping(b) AS gb, grouping_id() AS gid, count(*) AS c
FROM t GROUP BY ROLLUP (k, b)

-- cube: t
SELECT g, b, count(*) AS c, max(x) AS m FROM t GROUP BY CUBE (g, b)

-- grouping_sets: t
SELECT k, g, b, count(*) AS c, grouping(k) AS gk FROM t GROUP BY GROUPING SETS ((k), (g, b), ())

-- grouping_sets_repeated: t
SELECT k, count(*) AS c FROM t GROUP BY GROUPING SETS ((k), (k), ())

-- grouping_sets_mixed: t
SELECT k, g, sum(n) AS s FROM t GROUP BY k, ROLLUP (g)

-- grouping_sets_having: t
SELECT k, b, count(DISTINCT g) AS c FROM t GROUP BY CUBE (k, b) HAVING grouping_id() < 3

-- cube_distinct: u
SELECT k, label, count(DISTINCT w) AS c, sum(w) AS s FROM u GROUP BY CUBE (k, label)

-- distinct_rows: t
SELECT DISTINCT k, g FROM t

-- distinct_one: t
SELECT DISTINCT x FROM t

-- distinct_nested: docs
SELECT DISTINCT xs, st FROM docs

-- distinct_of_expression: t
SELECT DISTINCT length(g) AS l, k % 2 AS o FROM t WHERE n IS NOT NULL

-- distinct_of_groups: t
SELECT DISTINCT c FROM (SELECT k, g, count(*) AS c FROM t GROUP BY k, g)

-- count_distinct: t
SELECT k, count(DISTINCT g) AS c FROM t GROUP BY k

-- count_distinct_two: t
SELECT k, count(DISTINCT g, b) AS c, count(DISTINCT n) AS e FROM t GROUP BY k

-- distinct_several: t
SELECT k, count(DISTINCT g) AS a, sum(DISTINCT n) AS c, avg(DISTINCT d) AS e, max(DISTINCT x) AS h,
  count(*) AS i, sum(n) AS j
FROM t GROUP BY k

-- distinct_global: t
SELECT count(DISTINCT k) AS a, count(DISTINCT g) AS c, sum(DISTINCT n) AS e FROM t

-- group_of_group: t
SELECT c, count(*) AS groups FROM (SELECT k, g, count(*) AS c FROM t GROUP BY k, g) GROUP BY c

-- group_of_group_of_group: t
SELECT max(m) AS m FROM (
  SELECT k, max(s) AS m FROM (SELECT k, g, sum(n) AS s FROM t GROUP BY k, g) GROUP BY k)

-- group_of_union: t, u
SELECT k, count(*) AS c, sum(z) AS s
FROM (SELECT k, n AS z FROM t UNION ALL SELECT k, w FROM u) GROUP BY k

-- group_by_date_parts: t
SELECT year(day) AS y, month(day) AS m, count(*) AS c FROM t GROUP BY year(day), month(day)

-- group_by_window_of_time: t
SELECT window.start AS s, window.end AS e, count(*) AS c FROM t GROUP BY window(ts, '1 hour')

-- group_by_case: t
SELECT CASE WHEN n > 2 THEN 'big' WHEN n <= 2 THEN 'small' END AS size, avg(d) AS a FROM t
GROUP BY CASE WHEN n > 2 THEN 'big' WHEN n <= 2 THEN 'small' END

-- sum_null_groups: t
SELECT g, sum(CASE WHEN b THEN n END) AS s, count(CASE WHEN b THEN n END) AS c FROM t GROUP BY g

-- pivot: t
SELECT * FROM (SELECT k, g, n FROM t) PIVOT (sum(n) AS s FOR g IN ('a' AS a, 'b' AS b))

-- pivot_two: t
SELECT * FROM (SELECT k, b, n, d FROM t)
PIVOT (count(n) AS c, max(d) AS m FOR b IN (true AS yes, false AS no))

-- unpivot: u
SELECT * FROM (SELECT k, w, CAST(x AS INT) AS y FROM u WHERE NOT isnan(x)) UNPIVOT (value FOR name IN (w, y))

-- unpivot_nulls: nums
SELECT * FROM (SELECT v, r FROM nums) UNPIVOT INCLUDE NULLS (value FOR name IN (v, r))

-- count_distinct_never_null: t
SELECT k, count(DISTINCT coalesce(g, '?')) AS a, count(DISTINCT struct(g, id)) AS c, count(DISTINCT 1) AS e, count(*) AS h
FROM t GROUP BY k

-- session_windows: t
SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS c, count(DISTINCT g) AS d
FROM t GROUP BY k, session_window(ts, '1 hour')

-- session_windows_global: t
SELECT session_window.start AS s, count(*) AS c FROM t GROUP BY session_window(ts, '1 hour')

-- group_by_map_within: docs
SELECT s, count(*) AS c FROM (SELECT struct(map_filter(m, (key, value) -> value > 0) AS m, tiny) AS s FROM docs WHERE m IS NOT NULL)
GROUP BY s

-- group_by_collated_within: t
SELECT lower(s.w) AS w, b, c FROM (SELECT struct(w) AS s, b, count(*) AS c FROM (SELECT g COLLATE UTF8_LCASE AS w, b FROM t) GROUP BY struct(w), b)
