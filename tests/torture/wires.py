"""TCP connections that can be made to fail: a proxy before PostgreSQL or before the upstream.

A Link listens on a port and leads to a target. What it does to the connections that it carries:

    cut      both ends are gone at once
    stall    nothing moves for a while, then all of it
    mute     what is asked arrives; no reply comes back, and then the connection is cut
    ghost    the asker is cut off; what it had sent arrives, much later
    refuse   nobody can connect for a while

All links live in one thread with one event loop.
"""
import asyncio
import contextlib
import threading


class Wire:
    """One connection through a link."""

    def __init__(self, asker, server):
        self.asker, self.server = asker, server  # writers
        self.open = asyncio.Event()
        self.open.set()
        self.muted = self.haunted = False
        self.held = []

    def cut(self):
        self.asker.transport.abort()
        self.server.transport.abort()

    async def carry(self, reader, writer, asks):
        """One direction, until its end."""
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.open.wait()
                if asks and self.haunted:
                    self.held.append(data)
                elif asks or not self.muted:
                    writer.write(data)
                    await writer.drain()

    async def run(self, asker_reader, server_reader):
        ways = [asyncio.ensure_future(self.carry(asker_reader, self.server, True)),
                asyncio.ensure_future(self.carry(server_reader, self.asker, False))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            while self.haunted:
                await asyncio.sleep(0.05)
        finally:
            for way in ways:
                way.cancel()
            for writer in (self.asker, self.server):
                writer.close()


class Link:
    def __init__(self, name, port, target, loop):
        self.name, self.port, self.target, self.loop = name, port, target, loop
        self.wires, self.listener = set(), None

    async def carry(self, reader, writer):
        try:
            if isinstance(self.target, str):
                server_reader, server = await asyncio.open_unix_connection(self.target)
            else:
                server_reader, server = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(writer, server)
        self.wires.add(wire)
        try:
            await wire.run(reader, server_reader)
        finally:
            self.wires.discard(wire)

    async def listen(self):
        self.listener = await asyncio.start_server(self.carry, "127.0.0.1", self.port)

    async def do_cut(self, _):
        for wire in list(self.wires):
            wire.cut()

    async def do_stall(self, seconds):
        wires = list(self.wires)
        for wire in wires:
            wire.open.clear()
        await asyncio.sleep(seconds)
        for wire in wires:
            wire.open.set()

    async def do_mute(self, seconds):
        wires = list(self.wires)
        for wire in wires:
            wire.muted = True
        await asyncio.sleep(seconds)
        for wire in wires:
            wire.cut()

    async def do_ghost(self, seconds):
        wires = list(self.wires)
        for wire in wires:
            wire.haunted = True
        await asyncio.sleep(min(seconds, 0.3))
        for wire in wires:
            wire.asker.transport.abort()
        await asyncio.sleep(seconds)
        for wire in wires:
            with contextlib.suppress(OSError):
                for data in wire.held:
                    wire.server.write(data)
                await wire.server.drain()
        await asyncio.sleep(0.3)
        for wire in wires:
            wire.haunted = False

    async def do_refuse(self, seconds):
        self.listener.close()
        await self.do_cut(0)
        await asyncio.sleep(seconds)
        await self.listen()


class Wires:
    """All links, and the thread that they live in."""

    FAULTS = ("cut", "stall", "mute", "ghost", "refuse")

    def __init__(self):
        self.loop, self.links = asyncio.new_event_loop(), {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def link(self, name, port, target):
        self.links[name] = Link(name, port, target, self.loop)
        self.wait(self.links[name].listen())
        return port

    def fault(self, name, what, seconds):
        """Does it, and returns when it is over."""
        self.wait(getattr(self.links[name], f"do_{what}")(seconds))
