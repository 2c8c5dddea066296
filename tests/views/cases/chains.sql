-- Views over views over views; several views that share what they compute.

-- by_key: t
SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k

-- big_keys: by_key
SELECT k, c FROM by_key WHERE c > 2

-- big_rows: t, big_keys
SELECT t.id, t.k, b.c FROM t JOIN big_keys b ON t.k = b.k

-- of_big_rows: big_rows
SELECT c, count(*) AS rows, max(id) AS m FROM big_rows GROUP BY c

-- by_key_again: t
SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k

-- by_key_differs: by_key, by_key_again
SELECT * FROM by_key EXCEPT ALL SELECT * FROM by_key_again

-- by_key_joined: by_key, u
SELECT b.k, b.c, u.w FROM by_key b LEFT JOIN u ON b.k = u.k

-- by_key_self: by_key
SELECT a.k, b.k AS other FROM by_key a JOIN by_key b ON a.c = b.c

-- matched: t, u
SELECT t.id, t.k, u.w, u.label FROM t JOIN u ON t.k = u.k

-- matched_labels: matched
SELECT label, count(*) AS c, count(DISTINCT id) AS ids FROM matched GROUP BY label

-- best_label: matched_labels
SELECT label, c FROM matched_labels ORDER BY c DESC, label LIMIT 1

-- rows_of_best: matched, best_label
SELECT m.id, m.w FROM matched m WHERE m.label IN (SELECT label FROM best_label)

-- diamond: matched, by_key
SELECT m.id, b.c, m.w FROM matched m LEFT JOIN by_key b ON m.k = b.k

-- everything_again: t
SELECT * FROM t

-- everything_counted: everything_again
SELECT count(*) AS c FROM everything_again

-- exploded: docs
SELECT id, explode(xs) AS x FROM docs

-- exploded_ranks: exploded
SELECT id, x, r FROM (SELECT id, x, rank() OVER (PARTITION BY id ORDER BY x DESC) AS r FROM exploded) WHERE r <= 2

-- exploded_averages: exploded_ranks
SELECT r, avg(x) AS a, count(*) AS c FROM exploded_ranks GROUP BY r

-- above_average: t, by_key
SELECT id, n FROM t WHERE n > (SELECT avg(s) FROM by_key WHERE s < 1000)

-- union_of_views: by_key, matched_labels
SELECT CAST(k AS STRING) AS name, c FROM by_key UNION ALL SELECT label, c FROM matched_labels

-- empty_view: t
SELECT id, k FROM t WHERE k > 100

-- over_empty: empty_view, u
SELECT u.k, e.id FROM u LEFT JOIN empty_view e ON u.k = e.k

-- constants: t
SELECT * FROM VALUES (1, 'one'), (2, 'two') AS v(k, name)

-- over_constants: constants, t
SELECT c.name, count(t.id) AS n FROM constants c LEFT JOIN t ON t.k = c.k GROUP BY c.name

-- Pairs whose plans read alike, and that have to keep apart what they keep.

-- order_by_one: edges
SELECT a.src, b.src AS other, a.cost FROM edges a JOIN edges b ON a.dst = b.dst ORDER BY a.src, b.src, a.cost LIMIT 3

-- order_by_other: edges
SELECT a.src, b.src AS other, a.cost FROM edges a JOIN edges b ON a.dst = b.dst ORDER BY b.src, a.src, a.cost LIMIT 3

-- words_with_comma: t
SELECT g, count(*) AS c FROM t WHERE coalesce(g, 'z') IN ('a', 'b,B') GROUP BY g

-- comma_of_words: t
SELECT g, count(*) AS c FROM t WHERE coalesce(g, 'z') IN ('a,b', 'B') GROUP BY g

-- null_as_word: t
SELECT x, count(*) AS c FROM (SELECT if(k > 1, 'null', g) AS x FROM t) GROUP BY x

-- null_as_such: t
SELECT x, count(*) AS c FROM (SELECT if(k > 1, NULL, g) AS x FROM t) GROUP BY x

-- values_with_comma: t
SELECT v.b, count(t.id) AS c FROM (VALUES ('a,b', 'c'), ('a', 'x')) v(a, b) LEFT JOIN t ON t.g = v.a GROUP BY v.b

-- comma_of_values: t
SELECT v.b, count(t.id) AS c FROM (VALUES ('a', 'b,c'), ('a', 'x')) v(a, b) LEFT JOIN t ON t.g = v.a GROUP BY v.b
