"""The fault proxy does what it says: a fault that does not happen would make every test of it worthless."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from faults.proxy import HOST, FaultProxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that returns what it is sent; its port."""
    with socket.create_server((HOST, 0)) as server:

        def answer(peer: socket.socket) -> None:
            with peer, suppress(OSError):
                while data := peer.recv(65536):
                    peer.sendall(data)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def talk(port: int, data: bytes, seconds: float = 10) -> tuple[bytes, float]:
    """What comes back, and after how long."""
    begun, back = time.monotonic(), b""
    with socket.create_connection((HOST, port), timeout=seconds) as peer:
        peer.sendall(data)
        try:
            peer.shutdown(socket.SHUT_WR)
        except OSError as error:  # the reset has come already: recv raises it
            if error.errno != errno.ENOTCONN:
                raise
        while piece := peer.recv(65536):
            back += piece
    return back, time.monotonic() - begun


def test_without_faults_every_byte_passes(echo: Any) -> None:
    data = bytes(range(256)) * 4000
    with FaultProxy(echo) as proxy:
        assert talk(proxy.port, data)[0] == data
        assert (proxy.connections, proxy.reset, proxy.forwarded) == (1, 0, 2 * len(data))


def test_latency_delays_each_direction(echo: Any) -> None:
    with FaultProxy(echo, latency=0.2) as proxy:
        back, seconds = talk(proxy.port, b"x")
    assert back == b"x" and seconds >= 0.4


def test_bandwidth_is_limited(echo: Any) -> None:
    with FaultProxy(echo, bandwidth=100_000) as proxy:
        back, seconds = talk(proxy.port, bytes(50_000))
    assert len(back) == 50_000 and seconds >= 0.5


@pytest.mark.parametrize(("kind", "least", "most"), [("resets", 8, 35), ("cuts", 20, 55)])
def test_resets_come_at_their_rate(echo: Any, kind: Any, least: Any, most: Any) -> None:
    broken = 0
    with FaultProxy(echo, **{kind: 0.2}, seed=1) as proxy:
        for _ in range(100):
            try:
                talk(proxy.port, b"x")
            except ConnectionResetError:
                broken += 1
        assert broken == proxy.reset
    assert least <= broken <= most, "each connection has two pieces of data"


def test_a_partition_stops_everything_and_loses_nothing(echo: Any) -> None:
    with FaultProxy(echo) as proxy:
        with socket.create_connection((HOST, proxy.port), timeout=0.5) as peer:
            peer.sendall(b"a")
            assert peer.recv(1) == b"a"
            proxy.cut()
            time.sleep(0.1)
            peer.sendall(b"b")
            with pytest.raises(TimeoutError):
                peer.recv(1)
            with pytest.raises(TimeoutError):
                talk(proxy.port, b"c", seconds=0.5)
            proxy.heal()
            assert peer.recv(1) == b"b"
        assert talk(proxy.port, b"d")[0] == b"d"


def test_a_target_that_is_gone_is_a_reset() -> None:
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    with FaultProxy(port) as proxy, pytest.raises(ConnectionResetError):
        talk(proxy.port, b"x")


def test_close_ends_open_connections(echo: Any) -> None:
    proxy = FaultProxy(echo)
    with socket.create_connection((HOST, proxy.port), timeout=5) as peer:
        peer.sendall(b"a")
        assert peer.recv(1) == b"a"
        proxy.close()
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    proxy.close()
