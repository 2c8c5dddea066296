-- Set operations, with and without ALL, and CTEs.

-- union_all: t, u
SELECT k, g FROM t UNION ALL SELECT k, g FROM u

-- union_distinct: t, u
SELECT k, g FROM t UNION SELECT k, g FROM u

-- union_of_same: t
SELECT k FROM t UNION ALL SELECT k FROM t

-- union_types: t, u
SELECT k, x FROM t UNION ALL SELECT w, CAST(w AS DECIMAL(5, 1)) FROM u

-- union_three: t, u, nums
SELECT k FROM t UNION SELECT w FROM u UNION ALL SELECT v FROM nums

-- union_by_name: t, u
SELECT id, k FROM t UNION ALL (SELECT w AS id, k FROM u WHERE w > 0)

-- except_distinct: t, u
SELECT k FROM t EXCEPT SELECT k FROM u

-- except_all: t, u
SELECT k FROM t EXCEPT ALL SELECT k FROM u

-- except_two_columns: t, u
SELECT k, g FROM t EXCEPT SELECT k, g FROM u

-- except_all_two_columns: t, u
SELECT k, g FROM t EXCEPT ALL SELECT k, g FROM u WHERE w > 0

-- except_self: t
SELECT k FROM t EXCEPT ALL SELECT k FROM t WHERE b

-- intersect_distinct: t, u
SELECT k, g FROM t INTERSECT SELECT k, g FROM u

-- intersect_all: t, u
SELECT k FROM t INTERSECT ALL SELECT k FROM u

-- intersect_all_words: t, u
SELECT g FROM t INTERSECT ALL SELECT g FROM u

-- intersect_doubles: t, u
SELECT x FROM t INTERSECT SELECT x FROM u

-- sets_nested: t, u, nums
(SELECT k FROM t EXCEPT SELECT v FROM nums) INTERSECT (SELECT k FROM u UNION SELECT w FROM u)

-- sets_nested_all: t, u, nums
(SELECT k FROM t UNION ALL SELECT k FROM u) EXCEPT ALL (SELECT v FROM nums UNION ALL SELECT r FROM nums)

-- except_of_groups: t, u
SELECT k, count(*) AS c FROM t GROUP BY k EXCEPT SELECT k, count(*) FROM u GROUP BY k

-- union_of_groups: t, u
SELECT 't' AS name, k, count(*) AS c FROM t GROUP BY k UNION ALL SELECT 'u', k, count(*) FROM u GROUP BY k

-- union_with_literals: t
SELECT k, 1 AS kind FROM t UNION ALL VALUES (0, 2), (NULL, 3)

-- except_arrays: docs
SELECT tags FROM docs WHERE tiny >= 0 EXCEPT SELECT tags FROM docs WHERE tiny < 1

-- cte: t
WITH big AS (SELECT id, k, n FROM t WHERE n > 0) SELECT k, sum(n) AS s FROM big GROUP BY k

-- cte_twice: t
WITH s AS (SELECT k, count(*) AS c FROM t GROUP BY k)
SELECT a.k, b.k AS other FROM s a JOIN s b ON a.c = b.c AND a.k < b.k

-- cte_nested: t
WITH a AS (WITH b AS (SELECT k, n FROM t WHERE b) SELECT k, max(n) AS m FROM b GROUP BY k),
     c AS (SELECT k, m FROM a WHERE m IS NOT NULL)
SELECT count(*) AS n, sum(m) AS s FROM c

-- cte_of_cte: t, u
WITH a AS (SELECT k, n FROM t), b AS (SELECT a.k, u.w FROM a JOIN u ON a.k = u.k),
     c AS (SELECT k, sum(w) AS s FROM b GROUP BY k)
SELECT a.k, a.n, c.s FROM a LEFT JOIN c ON a.k = c.k

-- cte_union_self: edges
WITH hops AS (SELECT src, dst FROM edges),
     two AS (SELECT a.src, b.dst FROM hops a JOIN hops b ON a.dst = b.src)
SELECT src, dst FROM hops UNION SELECT src, dst FROM two

-- cte_shadowing: t
WITH u AS (SELECT k, 1 AS w FROM t) SELECT k, sum(w) AS s FROM u GROUP BY k

-- cte_columns: t
WITH s(key, total) AS (SELECT k, sum(n) FROM t GROUP BY k) SELECT key, total FROM s WHERE total > 0

-- cte_in_subquery: t, u
WITH s AS (SELECT k FROM u WHERE w > 0) SELECT id FROM t WHERE k IN (SELECT k FROM s) OR g = 'ab'

-- three_deep: t, u, nums
SELECT label, count(*) AS c FROM (
  SELECT DISTINCT a.k, a.label FROM (
    SELECT t.k, u.label, count(*) AS c FROM t JOIN u ON t.k = u.k GROUP BY t.k, u.label HAVING count(*) > 1
  ) a LEFT ANTI JOIN (SELECT r AS k FROM nums) o ON a.k = o.k
) GROUP BY label
