#!/usr/bin/env python3
"""An API that misbehaves in every way it can, and writes down all that reaches it.

    upstream.py PORT LOG SEED

What it does with the n-th request of a key is decided by the seed, the account, the key and n, so
that a run can be played again. All paths execute whatever arrives, but /resend executes a key once,
and gives those that come later the answer of the first. Answers of /stream are large, mostly.

GET /book/ACCOUNT/KEY tells what became of a request to /lookup, if it does not misbehave as well. An
effect stands there a moment later than it came about.

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
STREAM = (
    (10, (0, 0.03), True, (0, 0), 201, "whole"),
    (18, (0, 0.03), True, (0, 0), 201, "large"),
    (14, (0, 0.03), True, (0, 0), 201, "large-chunked"),
    (10, (0, 0.03), True, (0, 0), 201, "huge-chunked"),
    (8, (0, 0.1), True, (0, 0), 201, "large-slow"),
    (6, (0, 0.1), True, (0, 0), 201, "large-chunked-slow"),
    (4, (0, 0.05), True, (0, 0), 201, "large-stalled"),  # between two pieces for longer than allowed
    (6, (0, 0.05), True, (0, 0), 201, "large-half"),
    (6, (0, 0.05), True, (0, 0), 201, "large-chunked-half"),
    (4, (0, 0.05), True, (0, 0), 201, "large-until-close"),
    (3, (0, 0.05), True, (0, 0), 201, "reset"),
    (4, (0, 0.05), True, (0, 0), 500, "large"),
    (4, (0, 0.05), False, (0, 0), 429, "large"),
    (3, (0, 0.05), False, (0, 0), 429, "large-chunked-half"),
)
GOOD = (1, (0, 0.01), True, (0, 0), 201, "whole")
# Who says later what was not done, a lookup or an operator, needs an API that is done by then.
PROMPT, SOON = ("/lookup", "/people", "/short"), 1.6
# How the book answers, but for what is true: seconds before it, and the status or the way
TOLD = ((60, (0, 0.03), "true"), (8, (1.0, 2.5), "true"), (7, (0, 0.02), "pending"),
        (8, (0, 0.02), 503), (2, (0, 0.02), 429), (6, (0, 0.02), "reset"), (5, (0, 0.02), "half"),
        (4, (0, 0.02), "until-close"))
HIDDEN = 0.8  # for how long at most an effect does not stand in the book
# What a head that was cut off may tell
PARTS = (("path", rb"^POST (\S+) "), ("key", rb"(?i)\r\nidempotency-key: *(\S+)\r\n"),
         ("account", rb"(?i)\r\nx-account: *(\S+)\r\n"))
SIZES = {"large": 40000, "too": 100000, "huge": 300000}  # by the first word


class Upstream:
    def __init__(self, log, seed):
        self.log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.seed, self.good, self.arrivals = seed, False, 0
        self.seen, self.asked, self.executed = {}, {}, {}

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
            if lines[0].startswith("GET /book/"):
                return await self.tell(lines[0].split(" ")[1].split("?")[0].split("/")[2:], writer)
            fields = {n.lower(): v.strip() for n, v in
                      (line.split(":", 1) for line in lines[1:] if line)}
            arrival["key"] = fields.get("idempotency-key", "").strip('"')
            arrival["account"] = fields.get("x-account")
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            arrival.update(whole=True, body=body.decode("latin-1"))
        except asyncio.IncompleteReadError as error:
            if error.partial and not error.partial.startswith(b"G") or "key" in arrival:
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
            actions = STREAM if name[0] == "/stream" else ACTIONS
            action = dice.choices(actions, [a[0] for a in actions])[0]
        if arrival["key"].startswith("calm-slow-"):
            action = (1, (0, 0), True, (0.9, 0.9), 201, "whole")
        return action, dice

    async def act(self, n, arrival, writer):
        (_, before, executes, behind, status, how), dice = self.choose(arrival)
        name = (arrival["path"], arrival["account"], arrival["key"])
        delay = dice.uniform(*before)
        await asyncio.sleep(min(delay, SOON) if name[0] in PROMPT else delay)
        answer = {"status": status, "n": n, "padding": "." * SIZES.get(how.split("-")[0], 0)}
        if executes and name in self.executed and name[0] == "/resend":
            answer = self.executed[name]
            self.log("known", n=n, of=answer["n"])
        elif executes:
            self.executed[name] = {**answer, "at": time.monotonic()}
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
        half, endless = how.endswith("half"), how.endswith("until-close")
        pieces = [content[at:at + 20000] for at in range(0, len(content), 20000)]
        if "chunked" in how:
            lines.append("Transfer-Encoding: chunked")
            pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]
        elif not endless:
            lines.append(f"Content-Length: {len(content)}")
        if half:
            pieces = pieces[:len(pieces) // 2] + [pieces[-1][:len(pieces[-1]) // 2]]
        if "slow" not in how and "stalled" not in how:
            pieces = [b"".join(pieces)]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + pieces[0])
        for piece in pieces[1:]:
            await writer.drain()
            await asyncio.sleep(0.1 if "slow" in how else 0.8)
            writer.write(piece)
        await writer.drain()
        return not half and not endless

    async def tell(self, name, writer):
        """What became of this account's request to /lookup under that key; and does the connection go on?"""
        name = ("/lookup", *name)
        nth = self.asked[name] = self.asked.get(name, 0) + 1
        dice = random.Random(f"{self.seed} book {name} {nth}")
        hidden = max(0, random.Random(f"{self.seed} hidden {name}").uniform(-HIDDEN, HIDDEN))
        _, before, how = (0, (0, 0), "true") if self.good else \
            dice.choices(TOLD, [told[0] for told in TOLD])[0]
        await asyncio.sleep(dice.uniform(*before))
        done = self.executed.get(name)
        status, content = 404, {"error": "no such thing"}
        if isinstance(how, int):
            status, content = how, {"error": "not now"}
        elif how == "pending":
            status, content = 200, {"status": "pending"}
        elif done and time.monotonic() > done["at"] + hidden:
            status, content = 200, {"status": "done", "self": f"/things/{done['n']}"}
        self.log("told", name=name, status=status, how=how, content=content)
        if how == "reset":
            return self.leave(writer, True)
        return await self.say(writer, status, [("Content-Type", "application/json")],
                              json.dumps(content).encode(), str(how))

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
