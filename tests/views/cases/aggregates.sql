-- The aggregate functions of Spark that are deterministic, by group and over everything.

-- counts: t
SELECT k, count(*) AS a, count(1) AS c, count(n) AS e, count(n, g) AS h, count_if(b) AS i FROM t GROUP BY k

-- sums_of_types: t
SELECT k, sum(id) AS a, sum(n) AS c, sum(d) AS e, sum(x) AS h, sum(f) AS i FROM t GROUP BY k

-- sums_of_narrow: docs
SELECT id, sum(tiny) AS a, sum(short) AS c, avg(tiny) AS e FROM docs GROUP BY id

-- try_sums: t
SELECT k, try_sum(n * 1048576) AS a, try_avg(n) AS c FROM t GROUP BY k

-- averages: t
SELECT k, avg(id) AS a, mean(n) AS c, avg(d) AS e, avg(x) AS h FROM t GROUP BY k

-- extremes: t
SELECT k, min(g) AS a, max(g) AS c, min(x) AS e, max(x) AS h, min(day) AS i, max(ts) AS j, min(b) AS l,
  max(local) AS m, min(d) AS o
FROM t GROUP BY k

-- extremes_global: t
SELECT min(n) AS a, max(n) AS c, min(g) AS e, max(day) AS h FROM t

-- extremes_of_nested: docs
SELECT tiny, min(xs) AS a, max(tags) AS c, max(st) AS e, min(bin) AS h FROM docs GROUP BY tiny

-- variances: t
SELECT k, variance(n) AS a, var_pop(id) AS c, var_samp(d) AS e, stddev(n) AS h, stddev_pop(id) AS i,
  stddev_samp(f) AS j, std(id) AS l
FROM t GROUP BY k

-- moments: u
SELECT k, skewness(w) AS a, kurtosis(w) AS c FROM u GROUP BY k

-- moments_global: t
SELECT skewness(id) AS a, kurtosis(id) AS c, var_pop(id) AS e FROM t

-- correlations: t
SELECT b, corr(id, k) AS a, covar_pop(id, k) AS c, covar_samp(id, k) AS e FROM t GROUP BY b

-- regressions: t
SELECT b, regr_count(id, k) AS a, regr_avgx(id, k) AS c, regr_avgy(id, k) AS e, regr_sxx(id, k) AS h,
  regr_sxy(id, k) AS i, regr_syy(id, k) AS j, regr_slope(id, k) AS l, regr_intercept(id, k) AS m,
  regr_r2(id, k) AS o
FROM t GROUP BY b

-- booleans: t
SELECT k, bool_and(b) AS a, bool_or(b) AS c, every(n > 0) AS e, some(n > 5) AS h, any(b) AS i FROM t GROUP BY k

-- bit_aggregates: t
SELECT g, bit_and(k) AS a, bit_or(k) AS c, bit_xor(n) AS e FROM t GROUP BY g

-- max_by_min_by: t
SELECT k, max_by(g, struct(n, g)) AS a, min_by(id, struct(d, id)) AS c FROM t GROUP BY k

-- max_by_some (since 4.3): t
SELECT b, max_by(id, struct(day, id), 2) AS a FROM t WHERE id IS NOT NULL GROUP BY b

-- modes: t
SELECT b, mode(k, true) AS a, mode() WITHIN GROUP (ORDER BY g) AS c FROM t GROUP BY b

-- medians: t
SELECT k, median(n) AS a, percentile(id, 0.25) AS c, percentile(id, array(0.1, 0.9)) AS e,
  percentile(id, 0.5, k) AS h
FROM t WHERE k > 0 GROUP BY k

-- percentiles_within_group: t
SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS a,
  percentile_disc(0.3) WITHIN GROUP (ORDER BY id DESC) AS c
FROM t GROUP BY g

-- percentile_of_intervals: t
SELECT k, extract(SECOND FROM median(ts - TIMESTAMP '2024-03-01 00:00:00')) AS a FROM t GROUP BY k

-- approximate_percentiles: t
SELECT b, approx_percentile(id, 0.5) AS a, percentile_approx(k, array(0.0, 1.0), 100) AS c FROM t GROUP BY b

-- approximate_counts: t
SELECT b, approx_count_distinct(id) AS a, approx_count_distinct(g, 0.01) AS c FROM t GROUP BY b

-- sketches: t
SELECT b, hll_sketch_estimate(hll_sketch_agg(id)) AS a, theta_sketch_estimate(theta_sketch_agg(id)) AS c
FROM t GROUP BY b

-- sorted_sets: t
SELECT k, sort_array(collect_set(g)) AS a, array_sort(collect_set(n)) AS c FROM t GROUP BY k

-- sorted_lists: t
SELECT k, sort_array(collect_list(id)) AS a, array_sort(array_agg(g)) AS c FROM t GROUP BY k

-- unsorted_lists (unordered a, c): t
SELECT k, collect_list(n) AS a, collect_set(g) AS c FROM t GROUP BY k

-- lists_of_structs: t
SELECT k, sort_array(collect_list(struct(n, g, id))) AS a FROM t GROUP BY k

-- distinct_lists: t
SELECT k, sort_array(collect_list(DISTINCT g)) AS a, count(DISTINCT n) AS c FROM t GROUP BY k

-- string_aggregates: t
SELECT k, listagg(g, ',') WITHIN GROUP (ORDER BY g) AS a,
  string_agg(DISTINCT g, '-') WITHIN GROUP (ORDER BY g DESC) AS c
FROM t GROUP BY k

-- histograms: t
SELECT b, aggregate(histogram_numeric(id, 20), 0D, (s, bin) -> s + bin.x * bin.y) AS a FROM t GROUP BY b

-- map_aggregates: t
SELECT k, map_from_entries(sort_array(collect_set(struct(coalesce(g, '?') AS key, 1 AS value)))) AS a FROM t GROUP BY k

-- distinct_aggregates_of_every_class: t
SELECT k, count(DISTINCT g) AS a, sum(DISTINCT id) AS c, sort_array(collect_set(DISTINCT b)) AS e,
  stddev_pop(DISTINCT id) AS h, min(n) AS i, median(id) AS j, bool_or(b) AS l
FROM t GROUP BY k

-- aggregates_of_every_class: t
SELECT k, count(*) AS a, sum(n) AS c, min(d) AS e, max(day) AS h, avg(id) AS i, count(DISTINCT g) AS j,
  sort_array(collect_list(g)) AS l, median(id) AS m, max_by(g, struct(n, g)) AS o, bool_and(b) AS p,
  approx_count_distinct(id) AS q
FROM t GROUP BY k

-- aggregates_of_every_class_global: t
SELECT count(*) AS a, sum(d) AS c, min(g) AS e, max(n) AS h, avg(id) AS i, count(DISTINCT g, b) AS j,
  sort_array(collect_set(k)) AS l, median(id) AS m, bool_or(b) AS p
FROM t

-- aggregates_over_expressions: t
SELECT k, sum(n * id + 1) AS a, max(length(g)) AS c, min(coalesce(day, DATE '2030-01-01')) AS e,
  sum(CASE WHEN b THEN 1 ELSE 0 END) AS h, avg(CAST(d AS DOUBLE)) AS i
FROM t GROUP BY k

-- aggregates_over_joins: t, u
SELECT u.label, sum(t.n * u.w) AS a, count(DISTINCT t.g) AS c, max(t.day) AS e, avg(u.w) AS h
FROM t LEFT JOIN u ON t.k = u.k GROUP BY u.label

-- sum_distinct_decimals: t
SELECT g, sum(DISTINCT d) AS a, avg(DISTINCT d) AS c FROM t GROUP BY g

-- product_by_logs: u
SELECT k, exp(sum(ln(w))) AS a FROM u WHERE w > 0 GROUP BY k

-- first_with_order: t
SELECT k, min_by(struct(id, g), struct(ts, id, g)) AS first, max_by(struct(id, g), struct(ts, id, g)) AS last
FROM t GROUP BY k

-- grouped_array_functions: t
SELECT k, size(collect_set(g)) AS a, array_max(collect_list(n)) AS c,
  aggregate(sort_array(collect_list(id)), 0, (acc, v) -> acc + coalesce(v, 0)) AS e
FROM t GROUP BY k

-- bitmaps: t
SELECT bitmap_bucket_number(id) AS bucket, bitmap_count(bitmap_construct_agg(bitmap_bit_position(id))) AS c
FROM t WHERE id IS NOT NULL GROUP BY bitmap_bucket_number(id)

-- count_min: u
SELECT label, count(w) AS c, hex(count_min_sketch(w, 0.5d, 0.5d, 1)) AS s FROM u GROUP BY label
