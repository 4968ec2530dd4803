"""Clients that ask again and again under the same keys, and write down every answer.

A key belongs to a route and is used by several accounts at once; its content is one of two. Keys
are taken from a window that slides: those in it are asked for by several clients at a time, older
ones now and then, to see whether the answer is still the same.
"""
import json
import random
import socket
import threading
import time

from harness import Connection, Cut, request_bytes

ACCOUNTS = ("ann", "bob-of-acme")
CONTENTS = ('{"item":"book","count":1}', '{"item":"lamp","count":1}')
# The same request in other words
SPELLINGS = {CONTENTS[0]: ('{"item":"book","count":1}', '{ "count": 1.0, "item": "book" }'),
             CONTENTS[1]: ('{"item":"lamp","count":1}', '{ "count": 1e0, "item": "lamp" }')}
KEPT = ("Content-Type", "ETag", "X-Arrival", "Location")


class Ask:
    """One request of a client, and what it saw of the answer."""

    def __init__(self, path, account, key, content, gateway):
        self.path, self.account, self.key, self.content = path, account, key, content
        self.gateway, self.began, self.ended = gateway, time.monotonic(), None
        self.status = self.body = self.lost = self.code = self.request_id = None
        self.replayed, self.kept, self.may_have_executed = False, {}, None
        self.recovered = self.resolved = None  # by whom others than the upstream itself
        self.result = self.recorded = False  # the checker knows whether it is one

    @property
    def name(self):
        return (self.path, self.account, self.key)

    def answered(self, response):
        self.status, self.body = response.status, response.body.decode("latin-1")
        self.code, self.replayed = response.field("Idempotency-Verdict"), response.replayed
        self.request_id = response.request_id
        self.recovered = response.field("Idempotency-Recovered")
        self.resolved = response.field("Idempotency-Resolved")
        self.recorded = response.field("Idempotency-Recorded") != "false"
        self.kept = {name: response.field(name) for name in KEPT}
        if self.code:
            self.may_have_executed = json.loads(self.body).get("may_have_executed")

    def __str__(self):
        if self.lost:
            what = f"no answer: {self.lost}"
        else:
            what = f"{self.status} {self.code or ('replay' if self.replayed else 'forwarded')}" \
                   f"{' found' if self.recovered else ''}{' resolved' if self.resolved else ''}" \
                   f" arrival {self.kept.get('X-Arrival')} {self.request_id} executed?" \
                   f"{'' if self.recorded else ' NOT RECORDED'} {self.may_have_executed} {self.body[:60]!r}"
        return f"{self.began:.3f}-{self.ended:.3f} {self.gateway}" \
               f" {self.content[9:13]} -> {what}"


def takes_its_time(connection, dice):
    """Reads nothing for a while; there is not much room for what is sent meanwhile."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    time.sleep(dice.uniform(0.3, 1.5))


def leaves(connection, _):
    connection.more()
    connection.reset()
    raise Cut(connection.buffer)


def ask(log, gateway, name, content, timeout=4.0, spelling=None, manner=lambda connection: None):
    """Asks, and appends what came of it to the log."""
    path, account, key = name
    one = Ask(path, account, key, content, gateway.name)
    try:
        with Connection(gateway.port, timeout) as connection:
            connection.send(request_bytes("POST", path, [
                ("Content-Type", "application/json"), ("X-Account", account),
                ("Idempotency-Key", key)], (spelling or content).encode()))
            manner(connection)
            one.answered(connection.response())
    except (OSError, Cut, socket.timeout) as error:
        one.lost = type(error).__name__
    one.ended = time.monotonic()
    log.append(one)
    return one


class Clients:
    """As many threads as said, until .stop()."""

    WINDOW, EACH = 16, 10  # keys in use at a time; after so many requests a key is put aside

    def __init__(self, gateways, paths, seed, count):
        self.gateways, self.paths, self.seed = gateways, paths, seed
        self.log, self.lock, self.stopping = [], threading.Lock(), threading.Event()
        self.made, self.window, self.old = 0, [], []
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True)
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def key(self, dice):
        """A key of the window, or an old one; with the number of times it was taken."""
        with self.lock:
            if self.old and dice.random() < 0.15:
                return dice.choice(self.old)
            while len(self.window) < self.WINDOW:
                self.made += 1
                self.window.append([self.made, 0])
            at = dice.choice(self.window)
            at[1] += 1
            if at[1] >= self.EACH:
                self.window.remove(at)
                self.old.append(at[0])
            return at[0]

    def run(self, number):
        dice = random.Random(f"{self.seed} client {number}")
        while not self.stopping.is_set():
            key = self.key(dice)
            path = self.paths[key % len(self.paths)]
            name = (path, dice.choice(ACCOUNTS), f"key-{key}")
            content = CONTENTS[dice.random() < 0.06]
            manner = lambda connection: None
            if path == "/stream" and dice.random() < 0.2:
                chosen = dice.choice((takes_its_time, leaves))
                manner = lambda connection, how=chosen: how(connection, dice)
            one = ask(self.log, dice.choice(self.gateways), name, content,
                      dice.uniform(0.01, 0.3) if dice.random() < 0.05 else 4.0,
                      dice.choice(SPELLINGS[content]), manner)
            time.sleep(dice.uniform(0.1, 0.2) if one.lost else dice.uniform(0, 0.04))

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        return self.log
