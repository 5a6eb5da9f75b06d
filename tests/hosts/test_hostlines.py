from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.hosts import parse_hosts, read_hosts
from cloudcoll.hosts.formats import FORMATS, Line, detect

DATA = Path(__file__).parents[1] / "data"

FILES = {
    "openmpi": (
        "hostfile",
        [("node02", 10, ""), ("node01", 4, "ops"), ("node03", None, "")],
    ),
    "seq": ("seq", [("node02", 2, ""), ("node01", 1, ""), ("node03", 1, "")]),
    "rankfile": ("rankfile", [("node02", 1, ""), ("node01", 2, "")]),
    "mpich": (
        "mpich",
        [
            ("node02", 8, ""),
            ("fd00::2", 4, ""),
            ("node01", 1, "ops"),
            ("node03", 2, ""),
        ],
    ),
    "pbs": ("pbs", [("node02", 2, ""), ("node01", 2, "")]),
    "slurm": (
        "slurm",
        [
            (name, None, "")
            for name in (
                *("node08", "node09", "node10", "node20"),
                *("gpu1x1", "gpu1x2", "gpu2x1", "gpu2x2"),
            )
        ],
    ),
    "slurm-tasks": (
        "slurm",
        [("node02", 2, ""), ("node01", None, ""), ("node02b", None, "")],
    ),
    "kubernetes": (
        "kubernetes",
        [("worker-0.worker", 1, ""), ("worker-1.worker", 1, "")],
    ),
    "lightgbm": ("lightgbm", [("10.0.0.2", 2, ""), ("10.0.0.1", 1, "")]),
    "deepspeed": ("deepspeed", [("worker-1", 8, ""), ("worker-0", 8, "")]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("auto", [False, True], ids=["named", "auto"])
def test_example_file(name: str, auto: bool) -> None:
    """Tests that an example of each format reads the same, named or detected."""
    format, expected = FILES[name]
    hosts = read_hosts(DATA / f"hosts-{name}", "auto" if auto else format)
    assert [(host.name, host.slots, host.user) for host in hosts] == expected


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("a\nb slots=2", "hostfile"),
        ("fe80::1", "hostfile"),
        ("node[1-2] slots=4", "hostfile"),
        ("a\nb", "hostfile"),
        ("a\nb\na", "seq"),
        ("rank 0 = a", "rankfile"),
        ("a\nb:2", "mpich"),
        ("ops@[fe80::1]:2", "mpich"),
        ("a,b:2", "slurm"),
        ("n[1,2]", "hostfile"),
        ("n[1,2]x,m", "slurm"),
        ("a*2", "slurm"),
        ("10.0.0.1 12400", "lightgbm"),
    ],
)
def test_detect(text: str, format: str) -> None:
    """Tests every rule of automatic detection."""
    assert detect([Line("here", line) for line in text.split("\n")]) == format


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("hostfile", "a@b@c slots=2", "list:1: 'a@b@c' is not a host"),
        ("hostfile", "ok\nnode01:4", "list:2: 'node01:4' is not a host.*slots=8"),
        ("hostfile", "a slots=0", "list:1: '0' slots: a host takes 1 to"),
        ("hostfile", "a slots=two", "'two' slots"),
        ("hostfile", "a slots", "'' slots"),
        ("hostfile", "a speed=3", "'speed=3' not understood .known: slots=N"),
        ("hostfile", "a max_slots=many", "'max_slots=many' not understood"),
        ("hostfile", "+n0", "only means something inside an allocation"),
        ("hostfile", "^node01", "only means something inside an allocation"),
        ("hostfile", "-oProxyCommand=x", "is not a host"),
        ("hostfile", "nöde", "is not a host"),
        ("hostfile", "fe80::zz", "list:1: 'fe80::zz' is not an IPv6 address"),
        ("hostfile", "node[1-3", "list:1: cannot expand 'node"),
        ("seq", "a slots=2", "list:1: 'slots=2' after the host"),
        ("pbs", "a 2", "one host per line"),
        ("rankfile", "rank 0=a\nrank x=b", "list:2: 'rank x=b' is not a rank line"),
        ("rankfile", "rank 0=a\nrank 0=b", "list:2: rank 0 was placed.*at list:1"),
        ("rankfile", "rank 0=+n0 slot=1", "inside an allocation"),
        ("rankfile", "rank 0=n[1-2]", "is more than one host"),
        ("mpich", "a:0", "'0' slots"),
        ("mpich", "a:2 slots=2", "'slots=2' not understood"),
        ("slurm", "a,,b", "list:1: '' is not a host"),
        ("slurm", "a]b", "list:1: cannot expand"),
        ("lightgbm", "10.0.0.1", "is not 'address port'"),
        ("lightgbm", "h 1\nh 1", "list:2: h port 1 was listed before, at list:1"),
        ("auto", "@rack1", "ClusterShell group.*nodeset -e -S , @rack1"),
        ("auto", "[web]\nnode01", "list:1: .*Ansible inventory.*--list-hosts"),
        ("auto", "a\n[all:vars]", "list:2: .*Ansible inventory"),
        ("auto", "a ansible_host=10.0.0.1", "Ansible inventory"),
    ],
)
def test_refusals(format: str, text: str, message: str) -> None:
    """Tests that a bad line is refused in one line that says where and why."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_hosts(text, "list", format)
    assert "\n" not in str(caught.value)


@given(
    text=st.text(alphabet="ab01 \n#:=@[],-*/+slotrank", max_size=60),
    format=st.sampled_from(["auto", *FORMATS]),
)
def test_any_text_parses_or_is_refused(text: str, format: str) -> None:
    """Tests that any text gives distinct hosts or one line naming the source."""
    try:
        hosts = parse_hosts(text, "list", format)
    except UsageError as error:
        message = str(error)
    else:
        message = "list: read"
        assert len({host.name for host in hosts}) == len(hosts) >= 1
        assert all(host.slots is None or host.slots >= 1 for host in hosts)
    assert re.fullmatch("list:.+", message)
