from __future__ import annotations

import gc
import math
import os
import random
import secrets
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloudcoll import programs
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.probe import Conduct, agents, plan_probes, run_probe, runner
from cloudcoll.probe.extra_rounds import RESERVED_S, TOLD_AT_ONCE, WITHIN
from cloudcoll.probe.pacing import LADDER, TRIED_ROUNDS, TRIES
from cloudcoll.probe.plan import LOOKED_AT, ProbePlan
from cloudcoll.probe.results import Results
from cloudcoll.probe.shell import Local, Ssh
from cloudcoll.probe.spool import load_spool

pytestmark = pytest.mark.usefixtures("patient_probes")


def loopback(count: int, net: int = 0) -> tuple[Host, ...]:
    return tuple(Host(f"vm-{i}", f"127.0.{net}.{i + 1}") for i in range(count))


def short_plan(hosts: tuple[Host, ...]) -> ProbePlan:
    """Few samples; time for them, and for repeats, on a machine that is busy."""
    return replace(
        plan_probes(hosts),
        samples=12,
        ports=2,
        rtt_s=0.12,
        load_s=0.08,
        load_gap_s=0.01,
        window_s=0.01,
        sure_s=0.0,
        repeat_s=20.0,
    )


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock files of agents that are killed out of the system's /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def probe_locally(
    hosts: tuple[Host, ...],
    *,
    progress: Callable[[int, int], None] | None = None,
    force: bool = False,
) -> NetworkSnapshot:
    conduct = Conduct(progress=progress, force=force)
    return run_probe(hosts, short_plan(hosts), Local(), conduct)


def halves(snapshot: NetworkSnapshot) -> Fabric:
    """Return a fabric that takes the first half of the hosts for one rack."""
    half = len(snapshot.names) // 2
    sides = (snapshot.names[:half], snapshot.names[half:])
    return Fabric(
        Node("core", tuple(Node(s[0], tuple(Node(n) for n in s)) for s in sides))
    )


def load_halves(
    hosts: tuple[Host, ...], progress: Callable[[int, int], None] | None = None
) -> NetworkSnapshot:
    """Probe with a second phase that loads the links of `halves`."""
    # Rounds long enough for a rate on a machine that is busy, and enough of them.
    plan = replace(short_plan(hosts), load_s=0.15, uplink_s=4.0, uplink_flows=60)
    return run_probe(hosts, plan, Local(), Conduct(progress=progress), infer=halves)


def repeats_of(snapshot: NetworkSnapshot) -> int:
    repeated: int = snapshot.metadata["starved"]["repeated"]
    return repeated


def children() -> list[int]:
    """Return the processes of this one's agents, in the order of their hosts."""
    me = os.getpid()
    return [int(p) for p in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give agents all the time they need to start beside other tests."""
    monkeypatch.setattr(agents, "START_SECONDS", 60.0)


@pytest.fixture
def rsh(tmp_path: Path) -> Callable[[str], str]:
    """Return a maker of programs called like ssh, with cases by address."""

    def make(cases: str) -> str:
        script = tmp_path / "rsh"
        script.write_text(
            "#!/bin/sh\n"
            "while :; do\n"
            "  case $1 in -T) shift;; -o|-l) shift 2;; *) break;; esac\n"
            "done\n"
            f"host=$1; shift\ncase $host in\n{cases}\nesac\n"
            'exec sh -c "$*"\n'
        )
        script.chmod(0o755)
        return str(script)

    return make


@pytest.mark.alone  # what a sender that has to wait still sends is not counted
@pytest.mark.parametrize("count", [2, 7])
def test_every_pair_is_measured(count: int) -> None:
    """Tests that real agents on loopback measure all that was planned, and count."""
    hosts, seen = loopback(count), list[tuple[int, int]]()
    snapshot = probe_locally(
        hosts, progress=lambda done, total: seen.append((done, total))
    )
    assert (snapshot.hosts, snapshot.failed, snapshot.fabric) == (hosts, {}, None)
    off_diagonal = ~np.eye(count, dtype=bool)
    assert np.isfinite(snapshot.latency.values[off_diagonal]).all()
    assert (snapshot.latency.values[off_diagonal] > 0).all()
    planned = [
        (slot.number, *pair)
        for slot in short_plan(hosts).rounds()
        if slot.kind != "rtt"
        for pair in slot.pairs
    ]
    flows = snapshot.flows
    assert sorted(zip(flows.round, flows.src, flows.dst, strict=True)) == sorted(
        planned
    )
    assert flows.window_bytes.sum() > 0
    # All that arrived was sent, and no more than the plan allows.
    sent = snapshot.metadata["sent_bytes"]
    most = replace(short_plan(hosts), repeat_s=1.0).bytes
    assert flows.window_bytes.sum() < sent <= most
    facts = snapshot.metadata["agents"]
    assert set(facts) == {host.name for host in hosts}
    assert {"python", "boot_id", "load", "steal_s", "cpu_s"} < set(facts["vm-0"])
    assert "type" not in facts["vm-0"]
    # Each by what another host found.
    found = {host.name: facts[host.name]["address"] for host in hosts}
    assert found == {host.name: host.address for host in hosts}
    # Each meeting is reported once.
    planned_meetings = sum(len(slot.pairs) for slot in short_plan(hosts).rounds())
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    # More than planned where this machine was too busy for a meeting.
    assert seen[-1][0] == seen[-1][1] >= planned_meetings
    assert children() == []


def test_result_survives_storage(tmp_path: Path) -> None:
    """Tests that a probe's snapshot can be stored as it is."""
    from cloudcoll.measured.snapshot import load_snapshot

    stored = probe_locally(loopback(2)).save(tmp_path / "a.snap")
    again = load_snapshot(tmp_path / "a.snap")
    assert again.digest == stored.digest
    assert again.metadata == stored.metadata
    np.testing.assert_array_equal(again.rtt.seconds, stored.rtt.seconds)


def test_one_host_is_a_trivial_snapshot() -> None:
    """Tests that a single host needs no agent and is no error."""
    snapshot = probe_locally(loopback(1))
    assert len(snapshot.rtt.src) == len(snapshot.flows.src) == 0
    assert snapshot.failed == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_agent_costs_its_own_row_and_column(seed: int) -> None:
    """Tests that the others go on when a host dies at some moment."""
    rng = random.Random(seed)
    victim, moment = rng.randrange(5), rng.randrange(1, 10)

    def progress(done: int, _: int) -> None:
        if done == moment:
            os.kill(children()[victim], signal.SIGKILL)

    snapshot = probe_locally(loopback(5), progress=progress)
    assert snapshot.failed == {f"vm-{victim}": "killed by signal 9 (Killed)"}
    live = [i for i in range(5) if i != victim]
    measured = np.isfinite(snapshot.latency.values)
    assert measured[np.ix_(live, live)].sum() == 4 * 3
    assert not measured[victim].any()
    assert not measured[:, victim].any()
    assert victim not in {*snapshot.flows.src, *snapshot.flows.dst}
    assert children() == []


def test_a_stopped_agent_does_not_hang_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that an agent that says nothing more fails at its deadline."""
    # Longer than the others may take on a machine that is busy.
    monkeypatch.setattr(runner, "GRACE_SECONDS", 1.5)

    def progress(done: int, _: int) -> None:
        if done == 1:
            os.kill(children()[2], signal.SIGSTOP)

    snapshot = probe_locally(loopback(4), progress=progress)
    assert list(snapshot.failed) == ["vm-2"]
    assert "no answer in time" in snapshot.failed["vm-2"]
    assert children() == []


def test_what_cannot_be_killed_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that the end of a probe has a deadline of its own."""
    monkeypatch.setattr(agents, "STOP_SECONDS", 0.1)
    pipe = subprocess.PIPE
    # No leader of a group, so that signals of ours do not get there.
    with subprocess.Popen(
        ["sleep", "60"], stdin=pipe, stdout=pipe, stderr=pipe
    ) as stubborn:
        with agents.Agents([("vm-0", lambda: stubborn)]) as all_agents:
            all_agents.agents[0].start(b"")
        assert stubborn.poll() is None
        stubborn.kill()


def test_all_agents_dead_is_an_error_with_reasons() -> None:
    """Tests that a probe nobody survives ends at once and says why."""

    def progress(done: int, _: int) -> None:
        for child in children() if done == 1 else ():
            os.kill(child, signal.SIGKILL)

    with pytest.raises(UnusableError, match=r"0 of 3 .*vm-0: killed by signal 9"):
        probe_locally(loopback(3), progress=progress)


@pytest.mark.many
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ('*.3) PATH=/nonexistent; exec /bin/sh -c "$*";;', "python3 not found on vm-2"),
        ("*.3) echo 'ssh: no route to host' >&2; exit 255;;", "ssh: no route to host"),
        ("*.3) exec cat /dev/zero;;", "no agent in 64 KiB"),
        ("*.3) exit 3;;", "ended with exit code 3"),
        ("*.3) exec sleep 60;;", "no answer in time"),
    ],
    ids=["python3", "unreachable", "junk", "exit", "silent"],
)
def test_a_host_that_does_not_start(
    rsh: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    reason: str,
) -> None:
    """Tests that a host without an agent is named with the reason."""
    if "sleep" in case:
        # What the others take on a machine that is busy.
        monkeypatch.setattr(agents, "START_SECONDS", 5.0)
    hosts = loopback(4)
    snapshot = run_probe(hosts, short_plan(hosts), Ssh(rsh(case)))
    assert list(snapshot.failed) == ["vm-2"]
    assert reason in snapshot.failed["vm-2"]
    assert np.isfinite(snapshot.latency.values).sum() == 3 * 2
    assert children() == []


def test_banners_are_skipped(rsh: Callable[[str], str]) -> None:
    """Tests that what a login prints before the agent does no harm."""
    program = rsh("*.2) printf 'Welcome!\\0\\377 no newline'; echo hi >&2;;")
    hosts = loopback(2)
    snapshot = run_probe(hosts, short_plan(hosts), Ssh(program))
    assert snapshot.failed == {}


def test_an_address_that_others_cannot_resolve(rsh: Callable[[str], str]) -> None:
    """Tests that a host known to the driver only is named."""
    # Too long for a name, so no name server is asked.
    address = "x" * 64 + ".invalid"
    hosts = (*loopback(3), Host("vm-x", address))
    snapshot = run_probe(hosts, short_plan(hosts), Ssh(rsh("")))
    assert list(snapshot.failed) == ["vm-x"]
    assert f"{address} does not resolve" in snapshot.failed["vm-x"]


def test_a_wrong_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that agents whose wall clock jumps by an hour measure the same."""
    source = programs.agent_source()
    jump = b"import time\ntime.time = lambda t=time.time: t() + 3600 * (t() // 1 % 2)\n"
    monkeypatch.setattr(
        programs, "agent_source", lambda: source.replace(b"import time\n", jump, 1)
    )
    snapshot = probe_locally(loopback(3))
    assert snapshot.failed == {}
    assert 0 < snapshot.rtt.seconds.min() <= snapshot.rtt.seconds.max() < 1


def test_hosts_that_are_being_probed() -> None:
    """Tests that a second probe is refused by name, and let in by force."""
    hosts = loopback(2, net=7)
    refusals: list[str] = []

    def progress(done: int, _: int) -> None:
        if done == 1:
            pids = children()
            with pytest.raises(UnusableError, match="probe --force") as caught:
                probe_locally(hosts)
            refusals.append(str(caught.value))
            assert any(
                f"vm-0 is being probed by process {p} " in refusals[0] for p in pids
            )
            assert probe_locally(hosts, force=True).failed == {}

    probe_locally(hosts, progress=progress)
    assert len(refusals) == 1


def test_commands_do_not_start_all_at_once(
    rsh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that no more than `FAN_OUT` are on their way to their first frame."""
    monkeypatch.setattr(agents, "FAN_OUT", 2)
    starting: list[int] = []
    start = agents.AgentProcess.start

    def counted(agent: agents.AgentProcess, source: bytes) -> None:
        start(agent, source)
        # Not isinstance: some objects of other packages warn when they are asked.
        everyone = [a for a in gc.get_objects() if type(a) is agents.AgentProcess]
        starting.append(sum(a.awaits == "hello" for a in everyone) + 1)

    monkeypatch.setattr(agents.AgentProcess, "start", counted)
    assert probe_locally(loopback(4)).failed == {}
    assert len(starting) == 4
    assert max(starting) == 2


def test_the_session_key_is_nowhere_to_be_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests that no argument, variable, lock file or snapshot has the key."""
    keys: list[str] = []
    make = secrets.token_hex

    def noted(count: int) -> str:
        keys.append(make(count))
        return keys[-1]

    monkeypatch.setattr(secrets, "token_hex", noted)
    seen: list[bytes] = []

    def progress(done: int, _: int) -> None:
        if done == 1:
            for pid in children():
                for name in ("cmdline", "environ"):
                    seen.append(Path(f"/proc/{pid}/{name}").read_bytes())

    snapshot = probe_locally(loopback(2), progress=progress)
    seen += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    seen.append(repr(snapshot.metadata).encode())
    assert len(keys) == 1
    assert len(seen) > 4
    for text in seen:
        assert keys[0].encode() not in text
        assert bytes.fromhex(keys[0]) not in text


def test_reports_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an agent which invents results is failed, not believed."""
    source = programs.agent_source().replace(
        b'"slot": slot.number', b'"slot": slot.number * 7'
    )
    monkeypatch.setattr(programs, "agent_source", lambda: source)
    with pytest.raises(UnusableError, match="nobody asked for"):
        probe_locally(loopback(3))


def test_a_firewall_between_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that agents which never hear each other are an error that says so."""
    monkeypatch.setattr(runner, "REPEATS", 2)
    source = programs.agent_source().replace(b"reply is None", b"True")
    monkeypatch.setattr(programs, "agent_source", lambda: source)
    with pytest.raises(UnusableError, match="firewall"):
        probe_locally(loopback(2))


def test_hosts_too_busy_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that agents which sleep through all meetings are not a firewall's fault."""
    monkeypatch.setattr(runner, "REPEATS", 2)
    late = b"sleep_until(begin, slot.end)"
    source = programs.agent_source().replace(b"sleep_until(begin, slot.start)", late)
    monkeypatch.setattr(programs, "agent_source", lambda: source)
    with pytest.raises(UnusableError, match="their CPUs were busy: "):
        probe_locally(loopback(2))


@pytest.mark.many
@pytest.mark.parametrize("hosts", [2, 5])
def test_starved_meetings_are_repeated(
    hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that what agents sleep through is measured afterwards."""
    # In the first round of each pass all of them come too late. A stall of the
    # machine then leaves a repeated flow some windows.
    plan = replace(short_plan(loopback(hosts)), load_s=0.4)
    kinds = [slot.kind for slot in plan.rounds()]
    loads, again = kinds.index("duplex"), len(kinds) - kinds[::-1].index("duplex")
    late = b"sleep_until(begin, slot.start + (slot.number in (0, %d, %d)) * "
    late = late % (loads, again) + b"(slot.end - slot.start))"
    source = programs.agent_source().replace(b"sleep_until(begin, slot.start)", late)
    monkeypatch.setattr(programs, "agent_source", lambda: source)
    snapshot = run_probe(loopback(hosts), plan, Local())
    starved = snapshot.metadata["starved"]
    assert starved["meetings"] >= 2 * (hosts // 2)
    assert starved["repeated"] >= 2
    off_diagonal = ~np.eye(hosts, dtype=bool)
    assert np.isfinite(snapshot.latency.values[off_diagonal]).all()
    planned = [slot.number for slot in plan.rounds() if slot.kind != "rtt"]
    assert sorted(set(snapshot.flows.round)) == planned
    assert np.isfinite(snapshot.flows.bytes_per_s).all()


@pytest.mark.alone
@pytest.mark.slow
def test_uplinks_are_loaded_in_rounds_of_their_own() -> None:
    """Tests that groups send out and receive, more of them in later rounds."""
    hosts = loopback(6)
    snapshot = load_halves(hosts)
    assert snapshot.failed == {}
    told = snapshot.metadata["uplinks"]
    assert told["first"] == short_plan(hosts).count + repeats_of(snapshot)
    flows = snapshot.flows
    extra = flows.round >= told["first"]
    numbers = np.unique(flows.round[extra])
    assert numbers.tolist() == list(
        range(told["first"], told["first"] + told["rounds"])
    )
    assert ((flows.src[extra] < 3) != (flows.dst[extra] < 3)).all()
    # Two directions of two links, one flow each; then two each, as soon as no
    # host starved of CPU in the round with one.
    for sends in (flows.src < 3, flows.src >= 3):
        _, sizes = np.unique(flows.round[extra & sends], return_counts=True)
        assert sizes[:2].tolist() == [1, 1]
        assert np.count_nonzero(sizes == 2) >= 2
    assert np.isfinite(flows.bytes_per_s[extra]).all()
    assert children() == []


def test_uplinks_are_left_alone_without_a_budget() -> None:
    """Tests that a quick plan, and a caller who infers nothing, load no uplink."""

    def never(_: NetworkSnapshot) -> Fabric:
        raise AssertionError("asked for groups")

    hosts = loopback(2)
    local = Local()
    quick = run_probe(hosts, short_plan(hosts), local, infer=never)
    plan = replace(short_plan(hosts), uplink_s=0.5, uplink_flows=40)
    for snapshot in (quick, run_probe(hosts, plan, local)):
        assert "uplinks" not in snapshot.metadata
        assert snapshot.flows.round.max() < plan.count


def test_a_host_killed_while_uplinks_are_loaded() -> None:
    """Tests that the second phase, too, goes on without a host that died."""
    hosts = loopback(6)
    planned = sum(len(slot.pairs) for slot in short_plan(hosts).rounds())

    def progress(done: int, _: int) -> None:
        if done == planned + 1:
            os.kill(children()[1], signal.SIGKILL)

    snapshot = load_halves(hosts, progress)
    assert snapshot.failed == {"vm-1": "killed by signal 9 (Killed)"}
    assert 1 not in {*snapshot.flows.src, *snapshot.flows.dst}
    live = [i for i in range(6) if i != 1]
    measured = np.isfinite(snapshot.latency.values)
    assert measured[np.ix_(live, live)].sum() == 5 * 4
    assert snapshot.metadata["uplinks"]["rounds"] > 4
    assert children() == []


def test_a_plan_for_other_hosts() -> None:
    """Tests that a plan is only run for the number of hosts it is for."""
    plan = short_plan(loopback(3))
    with pytest.raises(UsageError, match="3 hosts cannot probe 4"):
        run_probe(loopback(4), plan, Local())


def test_no_descriptor_is_left_open() -> None:
    """Tests that a probe returns every file descriptor."""
    probe_locally(loopback(2))
    before = len(os.listdir("/proc/self/fd"))
    probe_locally(loopback(3))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("seed", range(2))
def test_an_interrupted_probe_goes_on(seed: int, tmp_path: Path) -> None:
    """Tests that a probe stopped at some moment under load loses no whole round."""
    hosts, spool = loopback(5), tmp_path / "spool"
    plan = short_plan(hosts)
    meetings = [slot.kind for slot in plan.rounds() for _ in slot.pairs]
    loaded = [i + 1 for i, kind in enumerate(meetings) if kind != "rtt"]
    moment = random.Random(seed).choice(loaded)

    def progress(done: int, _: int) -> None:
        if done == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_probe(hosts, plan, Local(), Conduct(progress=progress, spool=spool))
    assert children() == []
    left = Results(plan)
    load_spool(spool, hosts, plan, left)
    seen: list[int] = []
    again = Conduct(
        progress=lambda done, _: seen.append(done), spool=spool, resume=True
    )
    snapshot = run_probe(hosts, plan, Local(), again)
    # What was kept is counted before anything is measured.
    kept = left.count[0]
    assert seen[: kept + 1] == list(range(1, kept + 2))
    assert seen[-1] >= len(meetings)
    off_diagonal = ~np.eye(5, dtype=bool)
    assert np.isfinite(snapshot.latency.values[off_diagonal]).all()
    assert set(left.rtt(set()).seconds) <= set(snapshot.rtt.seconds)


def test_rows_outlive_the_hosts(tmp_path: Path) -> None:
    """Tests that the error of a probe nobody survives says where the rows are."""
    hosts, spool = loopback(3), tmp_path / "spool"
    # Loads so long that no host is done before it is killed, however late we are.
    plan = replace(short_plan(hosts), rtt_s=0.3, load_s=20.0)

    def progress(done: int, _: int) -> None:
        # What a host starved of CPU reported is not kept.
        if done >= 2 and load_spool(spool, hosts, plan, Results(plan)):
            for child in children():
                os.kill(child, signal.SIGKILL)

    conduct = Conduct(progress=progress, spool=spool)
    with pytest.raises(
        UnusableError, match=r"vm-0: .*; \d of \d+ .*/spool: go on .*--resume"
    ):
        run_probe(hosts, plan, Local(), conduct)
    assert load_spool(spool, hosts, plan, Results(plan))


@pytest.fixture
def no_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no flow that others' work holds up for one that the network stalls."""
    monkeypatch.setattr(runner, "usual_pace", lambda _: 0)


def test_what_finds_groups_is_loaded_while_agents_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a probe has started all agents before it imports anything."""
    hosts, started = loopback(3), list[int]()
    monkeypatch.setattr(runner, "preload", lambda: started.append(len(children())))
    run_probe(hosts, short_plan(hosts), Local(), infer=lambda s: flat(s.names))
    assert started == [3]


@pytest.mark.usefixtures("no_stalls")
def test_a_probe_goes_on_until_it_is_sure() -> None:
    """Tests that all pairs are loaded again until the groups are sure."""
    hosts = loopback(3)
    asked: list[int] = []

    def surer(snapshot: NetworkSnapshot) -> Fabric:
        asked.append(len(np.unique(snapshot.flows.round)))
        return replace(flat(snapshot.names), confidence=0.4 * len(asked))

    plan = replace(short_plan(hosts), load_s=0.1, sure_s=30.0)
    snapshot = run_probe(hosts, plan, Local(), infer=surer)
    loads = sum(count for kind, count, _ in plan.passes if kind != "rtt")
    assert asked == [loads, loads + 3, loads + 6]
    first = plan.count + repeats_of(snapshot)
    assert snapshot.metadata["sure"] == {"first": first, "rounds": 6}
    assert len(np.unique(snapshot.flows.round)) == loads + 6
    assert snapshot.fabric is not None
    assert snapshot.fabric.confidence == pytest.approx(1.2)


@pytest.mark.usefixtures("no_stalls")
@pytest.mark.parametrize(("sure_s", "more"), [(30.0, TOLD_AT_ONCE), (0.1, 0)])
def test_halves_meet_once_where_there_are_no_groups(sure_s: float, more: int) -> None:
    """Tests that a probe that is sure of none has each host meet one of the others."""
    hosts = loopback(4)

    def none(snapshot: NetworkSnapshot) -> Fabric:
        return replace(flat(snapshot.names), confidence=1.0)

    plan = replace(short_plan(hosts), load_s=0.1, sure_s=sure_s)
    snapshot = run_probe(hosts, plan, Local(), infer=none)
    first = plan.count + repeats_of(snapshot)
    assert snapshot.metadata["sure"] == {"first": first, "rounds": more}
    last = snapshot.flows.round >= first
    partners = zip(snapshot.flows.src[last], snapshot.flows.dst[last], strict=True)
    met = {frozenset(pair) for pair in partners}
    # Two of four meet the others: not each other.
    assert bool(met) == bool(more)
    assert len(met) <= 4


@pytest.mark.usefixtures("no_stalls")
def test_a_probe_that_gets_no_surer_ends_in_time() -> None:
    """Tests that the plan's seconds bound what is measured again."""
    hosts = loopback(3)
    plan = replace(
        short_plan(hosts), load_s=0.1, load_gap_s=0.05, sure_s=RESERVED_S + 1.0
    )

    def unsure(snapshot: NetworkSnapshot) -> Fabric:
        return replace(flat(snapshot.names), confidence=0.5)

    snapshot = run_probe(hosts, plan, Local(), infer=unsure)
    assert 1 <= snapshot.metadata["sure"]["rounds"] <= 6


@pytest.mark.usefixtures("no_stalls")
@pytest.mark.parametrize(
    ("sure_s", "more"), [(30.0, WITHIN), (RESERVED_S, WITHIN), (0.1, 0)]
)
def test_hosts_meet_inside_sure_groups_if_there_is_time(
    sure_s: float, more: int
) -> None:
    """Tests rounds after a probe is sure: in each both racks' hosts meet, no others.

    They tell what cards carry; who shares a link is not asked again.
    """
    hosts = loopback(4)
    plan = replace(short_plan(hosts), load_s=0.1, sure_s=sure_s)
    asked: list[Fabric] = []

    def sure(snapshot: NetworkSnapshot) -> Fabric:
        asked.append(replace(halves(snapshot), confidence=1.0))
        return asked[-1]

    snapshot = run_probe(hosts, plan, Local(), infer=sure)
    first = plan.count + repeats_of(snapshot)
    assert snapshot.metadata["sure"] == {"first": first, "rounds": more}
    last = snapshot.flows.round >= first
    ends = zip(snapshot.flows.src[last], snapshot.flows.dst[last], strict=True)
    assert {*ends} == ({(0, 1), (1, 0), (2, 3), (3, 2)} if more else set())
    (known,) = asked
    assert snapshot.fabric is not None
    for mine, theirs in zip(snapshot.fabric.lowest(), known.lowest(), strict=True):
        assert [*mine.leaves()] == [*theirs.leaves()]
    assert np.isfinite(snapshot.fabric.links.up).any() == bool(more)


@pytest.mark.usefixtures("no_stalls")
def test_groups_are_found_again_without_a_host_that_dies() -> None:
    """Tests one that dies after its group was sure: it is in none."""
    hosts = loopback(5)
    plan = replace(short_plan(hosts), load_s=0.1, sure_s=30.0)
    asked: list[NetworkSnapshot] = []

    def sure(snapshot: NetworkSnapshot) -> Fabric:
        asked.append(snapshot)
        if not snapshot.failed:
            os.kill(children()[-1], signal.SIGKILL)
        return replace(halves(snapshot), confidence=1.0)

    run_probe(hosts, plan, Local(), infer=sure)
    assert [list(snapshot.failed) for snapshot in asked] == [[], [hosts[-1].name]]


@pytest.mark.usefixtures("no_stalls")
def test_what_nobody_can_know_is_not_measured_again() -> None:
    """Tests that no more rounds are run where confidence is not known."""
    hosts = loopback(3)
    plan = replace(short_plan(hosts), sure_s=30.0)
    snapshot = run_probe(hosts, plan, Local(), infer=lambda s: flat(s.names))
    assert snapshot.metadata["sure"]["rounds"] == 0


PACE = 20_000_000
"""Bytes/s, a fiftieth of what loopback carries, 150 of its largest packets in 1 s."""


@pytest.mark.alone
@pytest.mark.parametrize("confidence", [1.0, math.nan])
def test_where_transfers_stall_they_are_paced(
    confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests real transfers at a pace, in which alone groups are looked for.

    All get through at each pace that is tried, so that they are sent at the highest;
    what was sent at others does not count.
    """
    hosts = loopback(3)
    before: list[LoadedFlows] = []
    asked: list[LoadedFlows] = []

    def usual(snapshot: NetworkSnapshot) -> int:
        before.append(snapshot.flows)
        return int(PACE / LADDER[-1])

    def sure(snapshot: NetworkSnapshot) -> Fabric:
        asked.append(snapshot.flows)
        return replace(flat(snapshot.names), confidence=confidence)

    monkeypatch.setattr(runner, "usual_pace", usual)
    plan = replace(short_plan(hosts), load_s=0.2, sure_s=30.0)
    snapshot = run_probe(hosts, plan, Local(), infer=sure)
    stalled, flows = before[-1], asked[0]
    assert not stalled.paced
    assert flows.paced
    assert snapshot.flows.paced
    assert snapshot.metadata["pace"] == pytest.approx(PACE, rel=1e-3)
    first = plan.count + repeats_of(snapshot) + TRIES * TRIED_ROUNDS
    assert set(flows.round.tolist()) == {first, first + 1, first + 2}
    assert np.nanmedian(flows.bytes_per_s) > 0.8 * PACE
    usual_rate = np.nanmedian(stalled.bytes_per_s)
    assert np.nanmax(flows.bytes_per_s) < 1.5 * PACE < usual_rate / 5


@pytest.mark.alone
def test_a_pace_at_which_nothing_gets_through_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that the lowest pace is left where cards carry less than each tried."""
    hosts = loopback(3)
    monkeypatch.setattr(runner, "usual_pace", lambda _: PACE)
    monkeypatch.setattr(runner, "through", lambda *_: False)
    plan = replace(short_plan(hosts), sure_s=30.0)
    snapshot = run_probe(
        hosts, plan, Local(), infer=lambda s: replace(flat(s.names), confidence=1.0)
    )
    assert snapshot.metadata["pace"] == int(PACE * LADDER[0])


@pytest.mark.alone
def test_what_stalls_is_not_measured_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that rounds are left out once some have stalled, and their time is used."""
    hosts = loopback(7)
    looked: list[int] = []

    def usual(snapshot: NetworkSnapshot) -> int:
        came = np.isfinite(snapshot.flows.bytes_per_s)
        looked.append(len(np.unique(snapshot.flows.round[came])))
        return PACE

    def unsure(snapshot: NetworkSnapshot) -> Fabric:
        return replace(flat(snapshot.names), confidence=0.5)

    monkeypatch.setattr(runner, "usual_pace", usual)
    told: list[tuple[int, int]] = []
    conduct = Conduct(progress=lambda *count: told.append(count))
    # Time for trying paces and for all pairs once, and then for a round or two.
    plan = replace(short_plan(hosts), sure_s=RESERVED_S + 1.5)
    loaded = sum(count for kind, count, _ in plan.passes if kind != "rtt")
    assert loaded > LOOKED_AT
    snapshot = run_probe(hosts, plan, Local(), conduct, infer=unsure)
    done, planned = told[-1]
    assert done == planned
    assert looked == [LOOKED_AT, LOOKED_AT]
    assert snapshot.flows.round.min() >= plan.count
    assert snapshot.metadata["sure"]["rounds"] > TRIES * TRIED_ROUNDS + loaded


def test_nothing_is_paced_without_time_for_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that what was measured as fast as TCP sends then stays."""
    hosts = loopback(3)
    monkeypatch.setattr(runner, "usual_pace", lambda _: PACE)
    plan = replace(short_plan(hosts), load_s=0.1, sure_s=0.01, uplink_s=1.0)
    snapshot = run_probe(hosts, plan, Local(), infer=lambda s: flat(s.names))
    assert not snapshot.flows.paced
    assert len(snapshot.flows.src)
    assert snapshot.metadata["sure"]["rounds"] == 0
    # Uplinks were loaded after it was looked for.
    assert snapshot.fabric is None
