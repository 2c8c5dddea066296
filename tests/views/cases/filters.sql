-- One table, row by row: WHERE, projections, expressions of every type.

-- everything: t
SELECT * FROM t

-- nested_everything: docs
SELECT * FROM docs

-- where_and_or: t
SELECT id, k, g FROM t WHERE (k > 1 AND g = 'a') OR n IS NULL OR NOT b

-- where_null_logic: t
SELECT id, k FROM t WHERE NOT (k = 2 AND b) AND k <> 3

-- where_in_list: t
SELECT id, g, k FROM t WHERE g IN ('a', 'B', NULL) AND k NOT IN (1, 9)

-- where_between_like: t
SELECT id, g, n FROM t WHERE n BETWEEN -5 AND 3 AND (g LIKE '%b' OR g RLIKE '^a' OR g ILIKE 'b')

-- where_never: t
SELECT id FROM t WHERE false

-- where_always: nums
SELECT v FROM nums WHERE true

-- where_is_distinct_from: t
SELECT id, k FROM t WHERE k IS DISTINCT FROM 2 AND NOT (g <=> NULL)

-- where_nan: t
SELECT id, x FROM t WHERE x = CAST('NaN' AS DOUBLE) OR x > 1

-- where_negative_zero: t
SELECT id, x FROM t WHERE x = 0 AND x >= -0D

-- unnamed_columns: t
SELECT k + 1, upper(g), n * 2 FROM t

-- duplicates_by_projection: t
SELECT b FROM t

-- constant_columns: nums
SELECT 1 AS one, 'x' AS word, CAST(NULL AS INT) AS nothing, v FROM nums

-- case_expressions: t
SELECT id, CASE k WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END AS a,
  CASE WHEN n > 5 THEN n WHEN b THEN -1 END AS c, if(k IS NULL, 0, k) AS e
FROM t

-- null_functions: t
SELECT id, coalesce(k, n, -1) AS a, nullif(k, 2) AS c, nvl(g, '?') AS e, nvl2(k, 'y', 'n') AS h,
  ifnull(d, 0) AS i, nanvl(x, -1) AS j, zeroifnull(k) AS l, nullifzero(n) AS m
FROM t

-- arithmetic: t
SELECT id, k + n AS plus, k - 2 AS minus, k * d AS product, n / 4 AS quotient, n DIV 3 AS whole,
  n % 3 AS rest, pmod(n, 3) AS modulo, -d AS negative, abs(x) AS absolute
FROM t

-- try_arithmetic: t
SELECT id, try_divide(n, k - 1) AS a, try_add(n, 9223372036854775807) AS c,
  try_multiply(n, 9223372036854775807) AS e, try_subtract(k, -2147483648) AS h, try_mod(n, k - 2) AS i
FROM t

-- casts: t
SELECT id, CAST(k AS STRING) AS a, CAST(d AS DOUBLE) AS c, CAST(day AS TIMESTAMP) AS e,
  CAST(b AS INT) AS h, CAST(ts AS DATE) AS i, CAST(n AS DECIMAL(20, 3)) AS j, try_cast(g AS INT) AS l,
  ts::STRING AS m
FROM t

-- decimals: t
SELECT id, d * d AS a, d / 3 AS c, round(d, 1) AS e, ceil(d) AS h, floor(d) AS i, d + 0.001 AS j,
  bround(d, 0) AS l
FROM t

-- float_functions: t
SELECT id, round(x, 1) AS a, floor(x) AS c, sqrt(abs(f)) AS e, isnan(x) AS h, greatest(x, f, 0) AS i,
  least(x, f) AS j, sign(x) AS l
FROM t WHERE x < 1e9 AND NOT isnan(x)

-- strings: t
SELECT id, g || '-' || k AS a, concat_ws(',', g, CAST(k AS STRING)) AS c, substr(g, 1, 1) AS e,
  length(g) AS h, lpad(g, 4, '*') AS i, replace(g, 'b', 'bb') AS j, instr(g, 'b') AS l,
  regexp_replace(g, '[ab]', '.') AS m, trim(g) AS o, reverse(g) AS p, repeat(g, 2) AS q,
  initcap(g) AS r, split(g, 'b') AS s, sha2(g, 256) AS w, format_string('%s:%d', g, k) AS y
FROM t

-- dates: t
SELECT id, date_add(day, 1) AS a, datediff(day, DATE '2024-02-01') AS c, year(day) AS e,
  month(day) AS h, last_day(day) AS i, add_months(day, 12) AS j, trunc(day, 'MM') AS l,
  dayofweek(day) AS m, date_format(day, 'yyyy/MM/dd') AS o, next_day(day, 'MON') AS p,
  weekofyear(day) AS q, day + INTERVAL 1 MONTH AS r
FROM t

-- timestamps: t
SELECT id, ts + INTERVAL '1 2:03' DAY TO MINUTE AS a, date_trunc('HOUR', ts) AS c, hour(ts) AS e,
  unix_micros(ts) AS h, timestampdiff(MINUTE, TIMESTAMP '2024-03-01 00:00:00', ts) AS i,
  local - INTERVAL 1 SECOND AS j, extract(SECOND FROM ts) AS l, to_utc_timestamp(ts, 'CET') AS m,
  timestampadd(DAY, k, ts) AS o
FROM t

-- intervals_inside: t
SELECT id, ts - TIMESTAMP '2024-03-01 00:00:00' > INTERVAL '1' HOUR AS later,
  extract(DAY FROM (ts - TIMESTAMP '2024-01-01 00:00:00')) AS days
FROM t WHERE local >= TIMESTAMP_NTZ '2024-03-01 00:00:00' - INTERVAL '1' DAY

-- boolean_columns: t
SELECT id, b, k > 2 AS more, b AND k > 2 AS both_true, b OR NULL AS either, NOT b AS other FROM t

-- bits: t
SELECT id, k & 1 AS a, k | 8 AS c, k ^ 3 AS e, ~k AS h, shiftleft(k, 2) AS i, n >> 1 AS j,
  bit_count(k) AS l, hex(k) AS m, conv(k, 10, 2) AS o
FROM t

-- hashes: t
SELECT id, hash(k, g, d) AS a, xxhash64(k, day) AS c, md5(g) AS e, crc32(g) AS h FROM t

-- binaries: docs
SELECT id, bin, hex(bin) AS a, base64(bin) AS c, length(bin) AS e, bin || X'00' AS h FROM docs
WHERE bin IS NULL OR bin <> X'FF'

-- narrow_integers: docs
SELECT id, tiny, short, tiny + short AS sum, CAST(short AS INT) * 2 AS twice FROM docs
WHERE tiny >= CAST(0 AS TINYINT) OR short < 0

-- json: t
SELECT id, to_json(named_struct('k', k, 'g', g)) AS a,
  get_json_object('{"a": {"b": 3}}', '$.a.b') AS c,
  from_json(concat('{"v": ', k, '}'), 'v INT').v AS e
FROM t

-- collations: t
SELECT id, g COLLATE UTF8_LCASE = 'b' AS same, g FROM t WHERE g COLLATE UTF8_LCASE >= 'B'

-- order_is_ignored: t
SELECT id, k FROM t ORDER BY k DESC NULLS LAST, id

-- values_only: t
SELECT * FROM VALUES (1, 'a'), (2, NULL), (2, NULL) AS v(a, b)

-- one_row: t
SELECT 1 AS a, array(1, 2) AS b

-- ranges: nums
SELECT v, r.id FROM nums JOIN range(3) AS r ON r.id <= v

-- pipe_syntax: t
FROM t |> WHERE k IS NOT NULL |> EXTEND k * 2 AS twice |> AGGREGATE count(*) AS c GROUP BY twice

-- star_except: t
SELECT * EXCEPT (x, f, local) FROM t WHERE day > DATE '2000-01-01'

-- lateral_column_alias: t
SELECT k + 1 AS a, a * 2 AS c, c - k AS e FROM t

-- error_free_short_circuit: t
SELECT id, CASE WHEN k <> 2 THEN 10 / (k - 2) END AS a, if(k = 1, 0, n / (k - 1)) AS c FROM t
