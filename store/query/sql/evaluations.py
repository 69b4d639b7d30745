"""The view `evaluations`, and the views that measure how well tasks are solved."""

from __future__ import annotations

# A verdict says its speedup itself; earlier ones say it only where they report their timing.
EVALUATIONS = """
SELECT
    call_id, session_id, group_id,
    coalesce(e.round_id, taken.round_id) AS round_id,  -- judged ahead of any round: that of its group
    compiled, correct, fault, raw_reward, result, content_hash,
    TRY_CAST(json_extract_string(CAST(result AS JSON), CASE WHEN json_exists(CAST(result AS JSON), '$.speedup')
        THEN '$.speedup' ELSE '$.details.timing.speedup' END) AS DOUBLE) AS speedup,
    make_timestamp(created_us) AS created_at
FROM stored.evaluations e LEFT JOIN stored.round_groups taken USING (group_id)
"""

SOLUTIONS = """
SELECT
    group_id,
    count(*) AS num_samples,
    count(*) FILTER (compiled) AS num_compiled,
    count(*) FILTER (correct) AS num_correct,
    max(speedup) FILTER (correct) AS best_speedup
FROM evaluations GROUP BY group_id
"""

# Chen et al., 2021, equation 1: 1 - C(n - c, k) / C(n, k), as a product
PASS_AT_K = """
WITH chances AS (
    SELECT
        k,
        1 - list_product(list_transform(range(k), lambda i: greatest(num_samples - num_correct - i, 0)
            / (num_samples - i))) AS passes,
        1 - list_product(list_transform(range(k), lambda i: greatest(num_samples - num_compiled - i, 0)
            / (num_samples - i))) AS compiles
    FROM solutions, (SELECT unnest([1, 2, 4, 8, 16, 32]) AS k) WHERE num_samples >= k
)
SELECT k, count(*) AS num_groups, avg(passes) AS pass_at_k, avg(compiles) AS compile_at_k
FROM chances GROUP BY k ORDER BY k
"""

FAST_P = """
SELECT
    p,
    count(*) AS num_groups,
    avg(CAST(num_correct > 0 AND (p = 0 OR coalesce(best_speedup > p, false)) AS INTEGER)) AS fast_p
FROM solutions, (SELECT unnest([0.0, 0.5, 0.8, 1.0, 1.5, 2.0]) AS p)
GROUP BY p ORDER BY p
"""

SPEEDUPS = """
SELECT
    coalesce(round_id, 0) AS round_id,
    count(*) AS num_measured,
    avg(log2(speedup)) AS log_mean,
    stddev_pop(log2(speedup)) AS log_std,
    quantile_cont(log2(speedup), [0.05, 0.25, 0.5, 0.75, 0.95]) AS log_quantiles
FROM evaluations WHERE correct AND speedup > 0 GROUP BY 1
"""
