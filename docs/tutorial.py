# %% [markdown]
# # A tutorial in Python
#
# Measure a network, look at it, find an order, and see whether it helps: with the
# functions that the commands are made of. The file is `docs/tutorial.py`, in cells as
# editors and Jupyter (by jupytext) know them. Start it in a
# [lab](start.md#2-start-a-data-centre), where it takes half a minute:
#
# ```text
# cloudcoll lab up --preset tuned --racks 3,2,3
# cloudcoll lab hosts > hosts
# cloudcoll lab exec -- python docs/tutorial.py hosts
# ```
#
# On the login node of a real cluster it is `python docs/tutorial.py hosts`, with your
# own list of hosts.

# %%
import sys
from pathlib import Path

import networkx
from matplotlib.figure import Figure

import cloudcoll

hostfile = sys.argv[1]
hosts = cloudcoll.read_hosts(hostfile)

# %% [markdown]
# ## Measure
#
# `measure` is `cloudcoll probe`. A snapshot has every raw sample, and the fabric that
# explains them.

# %%
snapshot = cloudcoll.measure(hosts, mode="quick")
stored = Path("tutorial.snap")
snapshot.save(stored)
fastest, slowest = min(snapshot.rtt.quantile(0.5)), max(snapshot.rtt.quantile(0.5))
print(f"{len(snapshot.hosts)} hosts")
print(f"round trips of {fastest * 1e6:.0f} to {slowest * 1e6:.0f} us")

# %% [markdown]
# ## Look at the fabric
#
# It is a tree. `to_networkx` makes it a graph, on which all of networkx works: here,
# the hosts of each group and what its uplink carries.

# %%
graph = snapshot.fabric.to_networkx()
core = snapshot.fabric.root.name
for group in graph.neighbors(core):
    if graph.nodes[group]["kind"] == "group":
        members = [name for name in graph.neighbors(group) if name != core]
        rate = graph.edges[core, group].get("up_bytes_per_s", float("nan"))
        print(f"{group}: {' '.join(members)}, uplink {rate * 8e-6:.0f} Mbit/s")

# %% [markdown]
# ## Find the order
#
# `order_for` is `cloudcoll solve`. We ask for Open MPI's ring, for calls of 4 MiB.
# The map that it returns has what it predicts of other orders, too.

# %%
best = cloudcoll.order_for(snapshot, hosts, algorithm="ring", size=4 << 20)
print("order:", *best.order)
for name in ("given", "cloudcoll"):
    print(f"predicted, {name}: {best.predicted[name] * 1e3:.0f} ms")

# %% [markdown]
# ## Measure both orders
#
# `compare` is `cloudcoll bench`: one job, in which the orders take turns. The words
# are those of your launcher, without a program.

# %%
run = cloudcoll.compare(
    ["mpirun", "--hostfile", hostfile],
    cloudcoll.OrderRequest(snapshot_path=stored),
    cloudcoll.CompareOptions(
        orders="given,cloudcoll",
        algorithm="ring",
        first=4 << 20,
        last=4 << 20,
        seconds=8,
    ),
)
(ratio,) = run.ratios()
print(
    f"measured: the order given takes {ratio.ratio:.2f} times as long "
    f"({ratio.low:.2f} to {ratio.high:.2f}); predicted: {ratio.predicted:.2f}"
)

# %% [markdown]
# ## Plot
#
# The fabric on the left, seconds of both orders on the right, as predicted and as
# measured.

# %%
figure = Figure((9, 3.6), layout="constrained")
tree, bars = figure.subplots(1, 2)
colors = [
    "#f6c391" if kind == "group" else "#a9d0f0" for _, kind in graph.nodes(data="kind")
]
networkx.draw(
    graph,
    networkx.kamada_kawai_layout(graph),
    ax=tree,
    node_color=colors,
    node_size=500,
    font_size=7,
    with_labels=True,
)
seconds = {
    median.order: median.time_us * 1e-6
    for median in run.medians()
    if median.order in ("given", "cloudcoll")
}
places = range(len(seconds))
bars.bar([at - 0.2 for at in places], [best.predicted[one] for one in seconds], 0.4)
bars.bar([at + 0.2 for at in places], seconds.values(), 0.4)
bars.set_xticks(places, seconds)
bars.set_ylabel("seconds of an allreduce of 4 MiB")
bars.legend(["predicted", "measured"], frameon=False)
figure.savefig("tutorial.svg")
figure.savefig("tutorial.png")
print("drawn: tutorial.svg, tutorial.png")
