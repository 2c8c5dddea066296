-- Window functions; every order decides, up to rows that are equal.

-- row_number: t
SELECT id, k, n, row_number() OVER (PARTITION BY k ORDER BY n, id, g) AS r FROM (SELECT id, k, n, g FROM t)

-- ranks: t
SELECT id, k, rank() OVER (PARTITION BY k ORDER BY n) AS r, dense_rank() OVER (PARTITION BY k ORDER BY n) AS e,
  percent_rank() OVER (PARTITION BY k ORDER BY n) AS p, cume_dist() OVER (PARTITION BY k ORDER BY n) AS c
FROM t

-- ntile: t
SELECT id, n, ntile(3) OVER (PARTITION BY b ORDER BY n, id) AS q FROM (SELECT id, n, b FROM t)

-- lag_lead: edges
SELECT src, dst, cost, lag(dst) OVER w AS before, lead(dst, 2, -1) OVER w AS after
FROM edges WINDOW w AS (PARTITION BY src ORDER BY dst, cost)

-- lag_ignore_nulls: edges
SELECT src, dst, cost, lag(dst) IGNORE NULLS OVER (PARTITION BY src ORDER BY cost, dst) AS before FROM edges

-- first_last_nth: edges
SELECT src, dst, cost, first_value(dst) OVER w AS a, last_value(dst) OVER w AS c, nth_value(dst, 2) OVER w AS e
FROM edges WINDOW w AS (PARTITION BY src ORDER BY dst, cost ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)

-- running_sum: t
SELECT id, k, n, sum(n) OVER (PARTITION BY k ORDER BY id, n) AS s FROM (SELECT id, k, n FROM t)

-- running_count_desc: t
SELECT id, g, count(*) OVER (PARTITION BY g ORDER BY id DESC NULLS LAST) AS c FROM t

-- whole_partition: t
SELECT id, k, count(*) OVER (PARTITION BY k) AS c, max(n) OVER (PARTITION BY k) AS m, n FROM t

-- share_of_partition: u
SELECT k, w, w / sum(w) OVER (PARTITION BY k) AS share FROM u WHERE w > 0

-- rows_frame: edges
SELECT src, dst, cost, sum(cost) OVER (PARTITION BY src ORDER BY dst, cost ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s
FROM edges

-- rows_frame_preceding: edges
SELECT src, dst, cost, max(dst) OVER (PARTITION BY cost ORDER BY src, dst ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS m
FROM edges

-- range_frame: t
SELECT id, k, sum(k) OVER (PARTITION BY b ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM t

-- range_frame_dates: t
SELECT id, day, count(*) OVER (ORDER BY day RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND INTERVAL '1' DAY FOLLOWING) AS c
FROM t

-- range_frame_times: t
SELECT id, ts, count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS c,
  sum(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS s
FROM t

-- without_partition: nums
SELECT v, r, row_number() OVER (ORDER BY v, r) AS n, sum(v) OVER (ORDER BY v, r) AS s FROM nums

-- without_partition_or_order: t
SELECT id, n, max(n) OVER () AS m, count(*) OVER () AS c FROM t

-- two_partitions: t
SELECT id, k, g, count(*) OVER (PARTITION BY k) AS a, count(*) OVER (PARTITION BY g) AS c,
  rank() OVER (PARTITION BY k, g ORDER BY n) AS r
FROM t

-- partition_by_expression: t
SELECT id, n, avg(n) OVER (PARTITION BY k % 2, coalesce(g, 'x')) AS a FROM t

-- window_of_groups: t
SELECT k, g, sum(n) AS s, rank() OVER (PARTITION BY k ORDER BY sum(n) DESC) AS r FROM t GROUP BY k, g

-- window_then_group: t
SELECT k, max(r) AS m FROM (SELECT k, dense_rank() OVER (PARTITION BY k ORDER BY n) AS r FROM t) GROUP BY k

-- window_then_filter: t
SELECT id, k, n FROM (SELECT id, k, n, max(n) OVER (PARTITION BY k) AS m FROM t) WHERE n = m

-- window_of_window: t
SELECT id, k, r, max(r) OVER (PARTITION BY k) AS m
FROM (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM t)

-- window_over_join: t, u
SELECT t.id, u.w, row_number() OVER (PARTITION BY t.k ORDER BY t.id, t.n, u.w) AS r
FROM (SELECT id, k, n FROM t) t JOIN (SELECT k, w FROM u) u ON t.k = u.k

-- differences: edges
SELECT src, dst, cost, dst - lag(dst) OVER (PARTITION BY src ORDER BY dst, cost) AS gap FROM edges

-- collected_window: t
SELECT id, k, sort_array(collect_set(g) OVER (PARTITION BY k)) AS s FROM t

-- median_window: t
SELECT id, k, median(id) OVER (PARTITION BY k) AS m FROM t

-- window_filter_clause (since 4.3): t
SELECT id, k, count(*) FILTER (WHERE b) OVER (PARTITION BY k) AS c FROM t

-- window_by_nan: t
SELECT id, x, rank() OVER (ORDER BY x DESC NULLS LAST) AS r FROM t

-- sessions: t
SELECT id, k, ts, sum(opens) OVER (PARTITION BY k ORDER BY ts, id RANGE UNBOUNDED PRECEDING) AS session
FROM (SELECT id, k, ts, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) <= INTERVAL '1' HOUR THEN 0 ELSE 1 END AS opens
      FROM (SELECT id, k, ts FROM t))

-- islands: nums
SELECT min(v) AS low, max(v) AS high, count(*) AS c
FROM (SELECT v, v - row_number() OVER (ORDER BY v) AS island FROM (SELECT DISTINCT v FROM nums WHERE v IS NOT NULL))
GROUP BY island

-- partition_by_collated_within: t
SELECT id, count(*) OVER (PARTITION BY struct(w)) AS c FROM (SELECT id, g COLLATE UTF8_LCASE AS w FROM t)
