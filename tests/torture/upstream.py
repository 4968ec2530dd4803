#!/usr/bin/env python3
"""An API that misbehaves in every way it can, and writes down all that reaches it.

    upstream.py PORT LOG SEED

What it does with the n-th request of a key is decided by the seed, the account, the key and n, so
that a run can be played again. Paths: /hold and /again execute whatever arrives; /resend executes a
key once, and gives those that come later the answer of the first.

LOG gets a line of JSON for each thing that happens, before it is seen outside. Times are those of
CLOCK_MONOTONIC, which all processes of a machine share. A line "good" on standard input ends the
misbehaviour; its end ends the process.
"""
import asyncio
import json
import os
import random
import re
import socket
import struct
import sys
import time

# How often; seconds before the effect; is there one; seconds after it; the status; how it is said
ACTIONS = (
    (46, (0, 0.03), True, (0, 0), 201, "whole"),
    (6, (0, 0.02), True, (0, 0), 201, "chunked"),
    (8, (0, 0.3), True, (0.1, 0.5), 201, "whole"),
    (6, (0, 0.1), True, (1.2, 3), 201, "whole"),  # later than the gateway waits
    (3, (1.3, 3.5), True, (0, 0), 201, "whole"),  # and so is the effect
    (5, (0, 0.05), True, (0, 0.1), 201, "reset"),
    (4, (0, 0.05), True, (0, 0.1), 201, "close"),
    (5, (0, 0.05), True, (0, 0), 201, "half"),
    (2, (0, 0.05), True, (0, 0), 201, "until-close"),
    (2, (0, 0.05), True, (0, 0), 201, "large"),
    (2, (0, 0.05), True, (0, 0), 201, "too-large"),
    (1, (0, 0.05), True, (0, 0), 201, "too-large-half"),
    (2, (0, 0.05), True, (0, 0), 500, "whole"),
    (2, (0, 0.05), False, (0, 0), 503, "whole"),
    (2, (0, 0.05), False, (0, 0), 201, "reset"),  # says nothing, and did nothing
    (6, (0, 0.1), False, (0, 0), 429, "whole"),
    (2, (0.9, 1.4), False, (0, 0), 429, "whole"),  # about when the gateway stops waiting
    (2, (0, 0.05), False, (0, 0), 400, "whole"),
    (2, (0, 0.05), False, (0, 0), 409, "whole"),
    (1, (0, 0.05), False, (0, 0), 422, "whole"),
)
GOOD = (1, (0, 0.01), True, (0, 0), 201, "whole")
# What a head that was cut off may tell
PARTS = (("path", rb"^POST (\S+) "), ("key", rb"(?i)\r\nidempotency-key: *(\S+)\r\n"),
         ("account", rb"(?i)\r\nx-account: *(\S+)\r\n"))
SIZES = {"large": 40000, "too-large": 100000, "too-large-half": 100000}


class Upstream:
    def __init__(self, log, seed):
        self.log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.seed, self.good, self.arrivals = seed, False, 0
        self.seen, self.executed, self.locks = {}, {}, {}

    def log(self, what, **more):
        line = json.dumps({"t": time.monotonic(), "what": what, **more})
        os.write(self.log_file, line.encode() + b"\n")

    async def serve(self, reader, writer):
        try:
            while await self.one(reader, writer):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    async def one(self, reader, writer):
        """A request and its answer; does the connection go on?"""
        arrival = {"whole": False}
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            arrival["path"] = lines[0].split(" ")[1]
            fields = {n.lower(): v.strip() for n, v in
                      (line.split(":", 1) for line in lines[1:] if line)}
            arrival["key"] = fields.get("idempotency-key", "").strip('"')
            arrival["account"] = fields.get("x-account")
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            arrival.update(whole=True, body=body.decode("latin-1"))
        except asyncio.IncompleteReadError as error:
            if error.partial or "key" in arrival:
                self.arrived(arrival, error.partial)
            return False
        return await self.act(self.arrived(arrival), arrival, writer)

    def arrived(self, arrival, partial=b""):
        for name, pattern in PARTS:
            if name not in arrival and (found := re.search(pattern, partial)):
                arrival[name] = found[1].decode("latin-1").strip('"')
        self.arrivals += 1
        self.log("arrived", n=self.arrivals, **arrival)
        return self.arrivals

    def choose(self, arrival):
        name = (arrival["path"], arrival["account"], arrival["key"])
        nth = self.seen[name] = self.seen.get(name, 0) + 1
        dice = random.Random(f"{self.seed} {name} {nth}")
        action = GOOD
        if not self.good and not arrival["key"].startswith("calm-"):
            action = dice.choices(ACTIONS, [a[0] for a in ACTIONS])[0]
        if arrival["key"].startswith("calm-slow-"):
            action = (1, (0, 0), True, (0.9, 0.9), 201, "whole")
        return action, dice

    async def act(self, n, arrival, writer):
        (_, before, executes, behind, status, how), dice = self.choose(arrival)
        await asyncio.sleep(dice.uniform(*before))
        name = (arrival["path"], arrival["account"], arrival["key"])
        answer = {"status": status, "n": n, "padding": "." * SIZES.get(how, 0)}
        if executes and name in self.executed and name[0] == "/resend":
            answer = self.executed[name]
            self.log("known", n=n, of=answer["n"])
        elif executes:
            self.executed[name] = answer
            self.log("effect", n=n)
        await asyncio.sleep(dice.uniform(*behind))
        content = json.dumps({"arrival": answer["n"], "account": arrival["account"],
                              "key": arrival["key"], "padding": answer["padding"]}).encode()
        if how in ("reset", "close"):
            self.log("silent", n=n, how=how)
            return self.leave(writer, how == "reset")
        kept = [("Content-Type", "application/json"), ("ETag", f'"{answer["n"]}"'),
                ("X-Arrival", str(answer["n"])), ("Location", f"/things/{answer['n']}")]
        self.log("answer", n=n, status=answer["status"], how=how, kept=kept,
                 body=content.decode())
        return await self.say(writer, answer["status"], kept, content, how)

    @staticmethod
    async def say(writer, status, kept, content, how):
        lines = [f"HTTP/1.1 {status} Whatever"] + [f"{n}: {v}" for n, v in kept]
        keeps = how in ("whole", "chunked", "large", "too-large")
        if how == "chunked":
            lines.append("Transfer-Encoding: chunked")
            content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
        elif how != "until-close":
            lines.append(f"Content-Length: {len(content)}")
        if how.endswith("half"):
            content = content[:len(content) // 2]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return keeps

    @staticmethod
    def leave(writer, reset):
        if reset:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False

    async def run(self, port):
        listener = await asyncio.start_server(self.serve, "127.0.0.1", port, backlog=512)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            self.good = line.strip() == "good"
        listener.close()


if __name__ == "__main__":
    asyncio.run(Upstream(sys.argv[2], sys.argv[3]).run(int(sys.argv[1])))
