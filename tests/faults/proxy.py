"""A TCP proxy on the loopback address that damages what passes: latency, resets, partitions, a limit of bandwidth.

It forwards bytes and knows no protocol, so TLS goes through it untouched. Its settings may be changed at any time.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK = 64 * 1024


class FaultProxy:
    """Forwards connections to a port of this machine. A context manager, which closes everything it opened.

    Args:
        target: the port to forward to; it may be changed, for new connections.
        latency: seconds that every piece of data is delayed, in either direction.
        resets: the probability with which a connection is reset, at its first or second piece of data.
        cuts: the probability with which any piece of data ends its connection by a reset, which hits long ones more.
        bandwidth: bytes a second of each connection and direction; None is no limit.
        seed: of the resets.

    `port` is where it listens; `connections`, `reset` and `forwarded` count connections, resets and bytes.
    """

    def __init__(
        self,
        target: int,
        latency: float = 0.0,
        resets: float = 0.0,
        cuts: float = 0.0,
        bandwidth: float | None = None,
        seed: int = 0,
    ) -> None:
        self.target, self.latency, self.bandwidth = target, latency, bandwidth
        self.resets, self.cuts = resets, cuts
        self.connections = self.reset = self.forwarded = 0
        self._draw = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._call(asyncio.start_server(self._accept, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.heal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """A partition: nothing passes in either direction and no new connection is completed, until `heal`."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        """End a partition: what waited passes now, as TCP would send it again."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def calm(self) -> None:
        """No fault of any kind from now on."""
        self.latency, self.resets, self.cuts, self.bandwidth = 0.0, 0.0, 0.0, None
        self.heal()

    def close(self) -> None:
        """End all connections and stop."""
        if self._loop.is_closed():
            return
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of something done in the proxy's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        there: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            back, there = await asyncio.open_connection(HOST, self.target)
            async with asyncio.TaskGroup() as both:
                left = self._pieces()
                both.create_task(self._forward(reader, there, left))
                both.create_task(self._forward(back, writer, left))
        except* OSError:
            _reset(writer, there)
        except* asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            for one in (writer, there):
                if one is not None:
                    with suppress(OSError, RuntimeError):
                        one.close()

    def _pieces(self) -> Iterator[bool]:
        """For each piece of data of a new connection whether it passes."""
        doomed = self._draw.randint(1, 2) if self._draw.random() < self.resets else 0
        for number in count(1):
            yield number != doomed and self._draw.random() >= self.cuts

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: Iterator[bool]) -> None:
        """One direction of a connection; pieces are delayed side by side, so that latency limits no bandwidth."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"begun"
            while data:
                data = await source.read(CHUNK)
                if data and not next(passes):
                    self.reset += 1
                    raise ConnectionResetError
                if data and self.bandwidth:
                    await asyncio.sleep(len(data) / self.bandwidth)
                await queue.put((self._loop.time() + self.latency, data))

        async def write() -> None:
            data = b"begun"
            while data:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await self._whole.wait()
                if data:
                    sink.write(data)
                    await sink.drain()
                    self.forwarded += len(data)
            with suppress(OSError):
                sink.write_eof()

        async with asyncio.TaskGroup() as both:
            both.create_task(read())
            both.create_task(write())


def _reset(*writers: asyncio.StreamWriter | None) -> None:
    """End connections with a reset and not with an orderly end."""
    for writer in writers:
        if writer is not None and (sock := writer.get_extra_info("socket")) is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
