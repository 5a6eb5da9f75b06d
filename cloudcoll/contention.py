"""How long a schedule takes where flows share links as TCP roughly does.

`CostModel` sees the busiest link of a step. Here every message is a flow, all flows
of a phase begin together, and the links are shared max-min fairly; whenever flows
end, the others speed up (progressive filling, Bertsekas and Gallager 1992; the fluid
model of SimGrid's CM02, Casanova and Marchal 2002, without its preference for short
round trips). So a flow that is held back at one link leaves room at another, and one
that crosses several busy links may end later than any of them would need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloudcoll.cost import CostModel, FlatSteps, Floats, Ints
from cloudcoll.fabric.fair import SAME, fair_rounds
from cloudcoll.fabric.links import Links

SEGMENTS = 32
"""In which the data of a pipelined schedule goes through its steps. No schedule says;
NCCL's trees cut 64 MiB into some 16 to 64 on each channel."""


def contended_seconds(model: CostModel, order: Ints | Sequence[int]) -> float:
    """Return the seconds of one call, or one step of a workload, as flows.

    A step ends with its last message: when its flow ends, after what the cost model
    lets it wait beside (the path's latency, the other's turn). Steps of a pipelined
    phase flow together, their latencies add up, and the first of `SEGMENTS` takes one
    step after the other. With figures of pairs a phase takes its flows or its worst
    pairs, whichever is slower.

    Parameters
    ----------
    model : CostModel
        Of the schedule, the fabric and the hosts' slots.
    order : sequence of int
        As of `CostModel.seconds`.

    Returns
    -------
    float
        Never less than the busiest link of each phase needs.
    """
    flat, host = model.flat(), model.host_of_rank(order)
    phase = flat.phase[flat.step]
    src, dst = host[flat.src], host[flat.dst]
    flows = flow_ends(flat.links, phase, src, dst, flat.size)
    wait = model.waits(order) * flat.wait_weight[flat.step]
    longest = np.zeros(len(flat.phase))
    np.maximum.at(longest, flat.step, wait)
    waits: Floats = np.zeros(flat.phases)
    np.add.at(waits, flat.phase, longest)
    ends = flows
    if flat.pairs is None:
        ends = flows + waits[phase] - (longest[flat.step] - wait)
        waits = np.zeros(flat.phases)
    np.maximum.at(waits, phase, ends)
    return float(waits.sum()) + _filling(flat, src, dst, flows)


def _filling(flat: FlatSteps, src: Ints, dst: Ints, flows: Floats) -> float:
    """Return the seconds that pipelines take until they are full, beside the rest.

    The first segment takes one step after the other, each with its flows alone.
    """
    phase = flat.phase[flat.step]
    piped = (np.bincount(flat.phase, minlength=flat.phases) > 1)[phase]
    step, size = flat.step[piped], flat.size[piped]
    first = flow_ends(flat.links, step, src[piped], dst[piped], size)
    alone, together = np.zeros(len(flat.phase)), np.zeros(flat.phases)
    np.maximum.at(alone, step, first)
    np.maximum.at(together, phase[piped], flows[piped])
    return float(alone.sum() - together.sum()) / SEGMENTS


def flow_ends(links: Links, phase: Ints, src: Ints, dst: Ints, size: Floats) -> Floats:
    """Return when each flow ends, in seconds from the begin of its phase.

    Every turn ends a flow of each phase that has some left: there are as many as
    the largest phase has flows, mostly far less.

    Parameters
    ----------
    links : Links
    phase : ndarray of int64, shape (flows,)
        Flows of one phase begin together; phases do not share links.
    src, dst : ndarray of int64, shape (flows,)
        Host columns of `links`.
    size : ndarray of float64, shape (flows,)
        Bytes.

    Returns
    -------
    ndarray of float64, shape (flows,)
        0 where no link of known capacity is crossed.
    """
    ends, left = np.zeros(len(size)), size.copy()
    now = np.zeros(int(phase.max(initial=-1)) + 1)
    running = np.flatnonzero((src != dst) & (size > 0))
    while len(running):
        mine = phase[running]
        rates, _ = fair_rounds(links, mine, src[running], dst[running])
        need = left[running] / rates
        first = np.full(len(now), np.inf)
        np.minimum.at(first, mine, need)
        now += np.where(np.isfinite(first), first, 0.0)
        done = need <= first[mine] * (1 + SAME)
        ends[running[done]] = now[mine[done]]
        passed = first[mine[~done]] * rates[~done]
        running = running[~done]
        left[running] -= passed
    return ends
