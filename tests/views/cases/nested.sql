-- Nested values: generators, higher-order functions, structs, maps.

-- explode_array: docs
SELECT id, x FROM docs LATERAL VIEW explode(xs) e AS x

-- explode_outer: docs
SELECT id, x FROM docs LATERAL VIEW OUTER explode(xs) e AS x

-- explode_selected: docs
SELECT id, explode(tags) AS tag FROM docs

-- posexplode: docs
SELECT id, pos, tag FROM docs LATERAL VIEW posexplode(tags) e AS pos, tag

-- posexplode_outer: docs
SELECT id, posexplode_outer(xs) AS (at, x) FROM docs

-- explode_map: docs
SELECT id, name, value FROM docs LATERAL VIEW explode(m) e AS name, value

-- explode_table_function: docs
SELECT d.id, e.col AS x FROM docs d, LATERAL explode(d.xs) e

-- explode_table_function_outer: docs
SELECT d.id, e.x FROM docs d LEFT JOIN LATERAL explode(d.xs) AS e(x) ON true

-- explode_twice: docs
SELECT id, x, tag FROM docs LATERAL VIEW explode(xs) a AS x LATERAL VIEW explode(tags) b AS tag

-- inline_structs: docs
SELECT id, inline(items) FROM docs

-- inline_outer: docs
SELECT id, sku, qty FROM docs LATERAL VIEW OUTER inline(items) e AS sku, qty, price

-- stack_rows: nums
SELECT stack(2, v, 'v', r, 'r') AS (value, name) FROM nums

-- sequences: nums
SELECT v, s FROM nums LATERAL VIEW explode(sequence(0, v)) e AS s

-- split_words: t
SELECT id, word FROM t LATERAL VIEW explode(split(g, '')) e AS word

-- exploded_groups: docs
SELECT tag, count(*) AS c, count(DISTINCT id) AS ids FROM docs LATERAL VIEW explode(tags) e AS tag GROUP BY tag

-- exploded_join: docs, t
SELECT d.id, t.g FROM (SELECT id, explode(xs) AS x FROM docs) d JOIN t ON t.k = d.x

-- exploded_items: docs
SELECT item.sku AS sku, sum(item.qty * item.price) AS total, max(item.qty) AS most
FROM (SELECT explode(items) AS item FROM docs) GROUP BY item.sku

-- struct_fields: docs
SELECT id, st.a AS a, st.b AS b, struct(id, st.a) AS c, named_struct('p', tiny, 'q', short) AS e FROM docs WHERE st.a > 1 OR st IS NULL

-- struct_star: docs
SELECT id, st.* FROM docs

-- array_functions: docs
SELECT id, size(xs) AS a, array_contains(xs, 1) AS c, xs[0] AS e, try_element_at(xs, -1) AS h, sort_array(xs) AS i,
  array_distinct(xs) AS j, array_union(xs, array(9)) AS l, slice(xs, 1, 2) AS m, array_max(xs) AS o,
  array_join(tags, '+') AS p, flatten(array(xs, xs)) AS q, array_position(xs, 2) AS r, arrays_overlap(xs, array(1, 2)) AS s
FROM docs WHERE size(xs) > 0

-- array_out_of_bounds: docs
SELECT id, get(xs, 5) AS a, try_element_at(xs, 7) AS c, try_element_at(m, 'z') AS e FROM docs

-- map_functions: docs
SELECT id, m['p'] AS a, sort_array(map_keys(m)) AS c, size(m) AS e, map_contains_key(m, 'q') AS h,
  map_filter(m, (k, v) -> v > 1) AS i, transform_values(m, (k, v) -> v * 2) AS j, map_concat(m, map('z', 0)) AS l
FROM docs

-- higher_order: docs
SELECT id, transform(xs, x -> x * 2) AS a, filter(xs, x -> x > 0) AS c, exists(xs, x -> x = 3) AS e,
  aggregate(xs, 0, (acc, x) -> acc + coalesce(x, 0)) AS h, forall(xs, x -> x >= 0) AS i,
  zip_with(xs, xs, (a, b) -> a + b) AS j, transform(items, i -> i.qty) AS l, array_sort(xs, (l, r) -> r - l) AS m
FROM docs WHERE forall(xs, x -> x IS NOT NULL)

-- nested_lambda: docs
SELECT id, transform(xs, x -> filter(xs, y -> y > x)) AS a FROM docs

-- built_values: t
SELECT id, array(k, k + 1) AS a, map('k', k, 'n', n) AS c, struct(g, struct(d, day) AS inner) AS e FROM t

-- nested_sums: docs
SELECT tiny, sum(size(xs)) AS a, max(st) AS c, sort_array(collect_list(st.a)) AS e FROM docs GROUP BY tiny

-- arrays_of_groups: t
SELECT k, transform(sort_array(collect_list(struct(id, g))), s -> s.id) AS ids FROM t GROUP BY k

-- exploded_again: t
SELECT k, element FROM (SELECT k, collect_set(g) AS s FROM t GROUP BY k) LATERAL VIEW explode(s) e AS element

-- maps_from_groups: t
SELECT map_from_entries(sort_array(collect_list(struct(name, c)))) AS m
FROM (SELECT coalesce(g, '?') AS name, count(*) AS c FROM t GROUP BY coalesce(g, '?'))

-- struct_in_list: docs
SELECT id, tags FROM docs WHERE st IN (struct(1, 'a'), struct(2, 'b')) OR tags = array('a')

-- order_by_struct: docs
SELECT id, st FROM docs ORDER BY st, id LIMIT 4

-- json_tuple: docs
SELECT id, a, b FROM docs LATERAL VIEW json_tuple(to_json(st), 'a', 'b') j AS a, b

-- explode_made_constant: t
SELECT id, at, word FROM t LATERAL VIEW OUTER posexplode(if(b, array('x', 'y'), array('x', 'y'))) e AS at, word

-- fields_of_one_name: t
SELECT arrays_zip(array(k), array(k)) AS z, named_struct('a', n, 'A', named_struct('b', g, 'b', ts - ts)) AS s, count(*) AS c FROM t GROUP BY 1, 2
