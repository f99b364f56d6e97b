"""The operator's list changes while a run uses it: nodes are revoked, and change their keys, without a stop."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from support.flower import ALL, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.hosts import hosts_file, key_pair, keyed_grid
from undrift.engine.flower.server.hosts import Hosts, HostsError, key_fingerprint
from undrift.testing import fingerprint

FULL = [client for client in ALL if client != 1]
"""The clients with examples."""

LISTS = (["0:8:3"], ["1:8:3"], ["2:8:3"])


def changing(changes: dict[int, Any]) -> Any:
    """An `on_round` that makes a change after some rounds."""

    def on_round(state: Any, record: Any) -> None:
        if state.round in changes:
            changes[state.round]()

    return on_round


def test_a_revoked_node_hosts_nothing_from_the_next_round(tmp_path: Path) -> None:
    """Node 1 is taken out of the list after round 1, and put back after round 2; the run is not stopped."""
    path, events = hosts_file(tmp_path, *LISTS), []
    whole = path.read_text()
    without = whole.replace(f"[node1]\nkey = '{key_pair(1)[0]}'\nclients = ['1:8:3']\n", "")
    assert "node1" not in without.replace(" node1", "")
    steps = {1: lambda: path.write_text(without), 2: lambda: path.write_text(whole)}
    strategy = strategy_of("scaffold", hosts=path, quorum=0.5, on_round=changing(steps))
    strategy.note_hosts(lambda **facts: events.append(facts))
    start(strategy, keyed_grid(tmp_path / "states"), 3)
    left = [client for client in ALL if client % 3 != 1]
    assert [list(record.clients) for record in strategy.records] == [FULL, left, FULL]
    assert dict(strategy.records[1].absent) == dict.fromkeys((1, 4, 7), "no node hosts it")
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, left, ALL))
    first, revoked, back = events
    assert first["nodes"]["node1"] == {
        "keys": [key_fingerprint(key_pair(1)[0].encode())],
        "clients": "1, 4, 7",
        "examples": None,
    }
    assert (revoked["removed"], revoked["added"], revoked["changed"]) == (["node1"], {}, {})
    assert list(back["added"]) == ["node1"] and back["sha256"] == first["sha256"] != revoked["sha256"]


def test_a_node_changes_its_key_without_a_stop(tmp_path: Path) -> None:
    """Both keys are in the list, the node comes back under the new one, and the old one is taken out."""
    path, events = hosts_file(tmp_path, *LISTS), []
    old, new = key_pair(1)[0], key_pair(9)[0]
    grid = keyed_grid(tmp_path / "states")
    both = path.read_text().replace(f"key = '{old}'", f"key = ['{old}', '{new}']")

    def replace_node() -> None:
        grid.kill(1)
        grid.keys_of[1] = key_pair(9)[1]
        grid.join(1)

    steps = {
        1: lambda: path.write_text(both),
        2: replace_node,
        3: lambda: path.write_text(both.replace(f"['{old}', '{new}']", f"'{new}'")),
    }
    strategy = strategy_of("scaffold", hosts=path, on_round=changing(steps))
    strategy.note_hosts(lambda **facts: events.append(facts))
    start(strategy, grid, 4)
    assert [list(record.clients) for record in strategy.records] == [FULL] * 4
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL, ALL))
    assert [event["changed"]["node1"]["keys"] for event in events[1:]] == [
        [key_fingerprint(old.encode()), key_fingerprint(new.encode())],
        [key_fingerprint(new.encode())],
    ]


def test_a_thief_with_the_old_key_gets_nothing(tmp_path: Path) -> None:
    """The old node stays connected after its key was taken out of the list: the clients are the new node's."""
    path = hosts_file(tmp_path, *LISTS)
    grid = keyed_grid(tmp_path / "states", 4, lambda c: range(c.node_config["partition-id"] % 3, 8, 3))
    grid.keys_of[3] = key_pair(9)[1]  # partition 3 has the data of partition 0, under a new key
    changed = path.read_text().replace(key_pair(0)[0], key_pair(9)[0])
    strategy = strategy_of("scaffold", hosts=path, on_round=changing({1: lambda: path.write_text(changed)}))
    start(strategy, grid, 2)
    assert {strategy.records[0].nodes[client] for client in (0, 3, 6)} == {grid.node_of(0)}
    assert {strategy.records[1].nodes[client] for client in (0, 3, 6)} == {grid.node_of(3)}
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL))


@pytest.mark.parametrize(
    "text", ["[node0", "[node0]\nnode = 1\nclients = [99]\n", None], ids=["toml", "client", "gone"]
)
def test_a_list_that_cannot_be_used_leaves_the_one_before(text: str | None, tmp_path: Path) -> None:
    path, events = hosts_file(tmp_path, *LISTS), []
    change = path.unlink if text is None else lambda: path.write_text(text)
    strategy = strategy_of("scaffold", hosts=path, on_round=changing({1: change}))
    strategy.note_hosts(lambda **facts: events.append(facts))
    start(strategy, keyed_grid(tmp_path / "states"), 3)
    assert [list(record.clients) for record in strategy.records] == [FULL] * 3
    assert len(events) == 2 and "hosts.toml" in events[1]["error"]


def test_clients_may_go_to_another_node_of_the_list(tmp_path: Path) -> None:
    """Node 1 gets a client of node 0, and both report all clients: the list decides."""
    path = hosts_file(tmp_path, [0, 1, 2], ["3:8"])
    grid = keyed_grid(tmp_path / "states", 2, ALL)
    moved = lambda: hosts_file(tmp_path, [0, 1], ["2:8"])  # noqa: E731
    strategy = strategy_of("scaffold", hosts=path, on_round=changing({1: moved}))
    start(strategy, grid, 2)
    assert [strategy.records[round].nodes[2] for round in (0, 1)] == [grid.node_of(0), grid.node_of(1)]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL))


def test_a_key_may_be_a_list_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(f"[a]\nkey = ['{key_pair(0)[0]}', '{key_pair(1)[0]}']\nclients = [0, 1, 2, 7]\nexamples = 9\n")
    hosts = Hosts.read(path)
    assert hosts.examples == dict.fromkeys([0, 1, 2, 7], 9) and hosts.entries["a"]["clients"] == "0-2, 7"
    for wrong in ("[]", "[1]", "['ssh-rsa nonsense']", f"['{key_pair(0)[0]}', '{key_pair(0)[0]}']"):
        path.write_text(f"[a]\nkey = {wrong}\nclients = [0]\n")
        with pytest.raises(HostsError):
            Hosts.read(path)


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    line = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJexMCWD1x62l14M3UDnQc7gQsUL/WGJe0Byj8woLxCj x"
    assert key_fingerprint(line) == "SHA256:begPLtBI0CUcOfmohQonHGhKzFapNBTmjcQJFZYlDOs"
    assert key_fingerprint(b"no key") == ""
