from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import HOSTS
from cloudcoll.hosts.formats import expand, split_list


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("node", ("node",)),
        ("node[3]", ("node3",)),
        ("node[01-03,20]", ("node01", "node02", "node03", "node20")),
        ("node[8-11]", ("node8", "node9", "node10", "node11")),
        ("node[098-101]", ("node098", "node099", "node100", "node101")),
        ("n[10-0020/5]", ("n10", "n15", "n20")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[[1-2],1[0-1]].ib", ("n1.ib", "n2.ib", "n10.ib", "n11.ib")),
        ("[07-08]", ("07", "08")),
        ("b,a[2-1,1]", None),
        ("b,a[2,1]", ("b", "a2", "a1")),
    ],
)
def test_expand(pattern: str, expected: tuple[str, ...] | None) -> None:
    """Tests that ranges expand in the order written, padding kept."""
    if expected is None:
        with pytest.raises(UsageError, match="holds no number"):
            expand(pattern)
    else:
        assert expand(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("node[1-3", "brackets do not match"),
        ("node1-3]", "brackets do not match"),
        ("node]1[", "brackets do not match"),
        ("node[a-c]", "'a-c' is not a number or a range"),
        ("node[]", "'' is not a number"),
        ("node[1,]", "'' is not a number"),
        ("node[1-2-3]", "is not a number"),
        ("node[1-9/0]", "holds no number"),
        ("node[" * 9 + "1" + "]" * 9, "nest more than"),
        (f"node[1-{HOSTS + 1}]", "more than 100000 hosts"),
        ("n[1-999999999999999999]", "more than 100000 hosts"),
        ("n[1-999]x[1-999]", "more than 100000 hosts"),
        ("n[" + "1-60000," * 2 + "1]", "more than 100000 hosts"),
    ],
)
def test_expand_refuses(pattern: str, message: str) -> None:
    """Tests that a bad pattern ends in one line, before memory is spent."""
    with pytest.raises(UsageError, match=message) as caught:
        expand(pattern)
    assert "\n" not in str(caught.value)


def test_expand_takes_the_largest_list() -> None:
    """Tests that the bound itself is still a legal size."""
    names = expand(f"n[1-{HOSTS}]")
    assert (len(names), names[-1]) == (HOSTS, f"n{HOSTS}")


@given(low=st.integers(0, 5000), count=st.integers(1, 50), width=st.integers(1, 6))
def test_padding_is_kept(low: int, count: int, width: int) -> None:
    """Tests that every number is at least as wide as the first, and in order."""
    first = str(low).zfill(width)
    names = expand(f"vm-[{first}-{low + count - 1}]")
    numbers = [name.removeprefix("vm-") for name in names]
    assert [int(number) for number in numbers] == list(range(low, low + count))
    assert all(
        len(number) == max(len(first), len(str(int(number)))) for number in numbers
    )


@given(st.text(alphabet="n[]1,-/", max_size=20))
def test_any_text_expands_or_is_refused(text: str) -> None:
    """Tests that no text makes the parser fail in another way."""
    try:
        names = expand(text)
    except UsageError:
        return
    assert len(names) >= 1
    assert not any("[" in name or "," in name for name in names)


def test_split_list_leaves_brackets_whole() -> None:
    """Tests that only commas outside brackets separate."""
    assert split_list("a[1,2],b:4,[::1]") == ["a[1,2]", "b:4", "[::1]"]
