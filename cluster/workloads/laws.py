"""Lengths by a law: log-normal or Pareto single turns, and sessions of agents with tools."""

from __future__ import annotations

import numpy as np

from weir.cluster.description import WorkloadSection
from weir.cluster.workloads.episode import Episode, Episodes

CHUNK = 4096


def single_turns(section: WorkloadSection) -> Episodes:
    """One turn each: log-normal (median, standard deviation of the logarithm) or Pareto (least, exponent), cut off."""
    random = np.random.default_rng(section.seed)
    while True:
        if section.kind == "pareto":
            lengths = section.median * 0.5 ** (1 / section.spread) * (1 + random.pareto(section.spread, CHUNK))
        else:
            lengths = section.median * np.exp(random.normal(0.0, section.spread, CHUNK))
        prompt = (float(section.prompt),)
        for length in np.clip(lengths, 1, section.limit).round():
            yield Episode(prompt, (float(length),), (0.0,))


def agent_sessions(section: WorkloadSection) -> Episodes:
    """Several turns: a geometric number of them, log-normal answers, exponential tool results and think times.

    A session ends when its context would exceed the limit.
    """
    random = np.random.default_rng(section.seed)
    while True:
        turns = int(random.geometric(1 / section.turns))
        outputs = np.clip(section.median * np.exp(random.normal(0, section.spread, turns)), 1, section.limit).round()
        inputs = np.concatenate([[section.prompt], random.exponential(section.result, turns - 1).round() + 1])
        thinks = np.concatenate(
            [[0.0], random.exponential(section.think_s, turns - 1) if section.think_s else np.zeros(turns - 1)]
        )
        whole = np.cumsum(inputs + outputs)
        kept = max(1, int(np.searchsorted(whole, section.limit, side="right")))
        outputs[0] = min(outputs[0], max(1.0, section.limit - section.prompt))
        yield Episode(tuple(inputs[:kept].tolist()), tuple(outputs[:kept].tolist()), tuple(thinks[:kept].tolist()))
