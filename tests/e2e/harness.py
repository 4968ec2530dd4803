"""What the end-to-end tests stand on: a scratch PostgreSQL, a scripted upstream that counts what
it was asked to do, real gateway processes, and a client that sees bytes. Standard library only.

A test is a function test_PROMISE(t) in a file test_THEME.py; `t` is a Stage, which makes what the
test asks for and puts it away afterwards. tests/e2e/run starts each test in a process of its own.

Crashes need no points of failure in the program: a neighbour is held (an upstream that does not
answer, a lock on a table, a stopped backend of PostgreSQL), and then the gateway or PostgreSQL
is killed in the state that is wanted.
"""
import collections
import contextlib
import glob
import itertools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "e2e")
ONCEWARD = os.path.abspath(os.environ.get("ONCEWARD", os.path.join(ROOT, "build", "onceward")))
SLOW = float(os.environ.get("E2E_SLOW", "1"))  # builds with sanitizers take longer
PG_BIN = subprocess.run([os.path.join(ROOT, "scripts", "pg-bin")], check=True,
                        capture_output=True, text=True).stdout.strip()


def own_postgres(test):
    """Marks a test that stops PostgreSQL, and so needs one that nobody else uses."""
    test.own_postgres = True
    return test


def tag(word):
    def mark(test):
        test.tags = getattr(test, "tags", set()) | {word}
        return test
    return mark


def until(condition, seconds=10.0, what="it"):
    """Waits until condition() is true, and returns what it returned."""
    end = time.monotonic() + seconds * SLOW
    while True:
        last = time.monotonic() > end  # whoever was stalled looks once more
        value = condition()
        if value:
            return value
        if last:
            raise AssertionError(f"{what} did not come true within {seconds * SLOW:g} s")
        time.sleep(0.02)


def lasting(seconds):
    """A time for the settings, longer where everything takes longer."""
    return f"{int(1000 * seconds * SLOW)}ms"


def unhurried(top=None, idempotency=None):
    """Settings of a pair under which nothing runs out while a test holds a neighbour or a busy
    machine stands still."""
    times = {"connect_timeout": "4s", "queue_timeout": "4s", "first_byte_timeout": "50s",
             "idle_timeout": "50s", "timeout": "50s"}
    return {"top": merged({"upstreams": {"orders": times}}, top),
            "idempotency": merged({"lease": "60s"}, idempotency)}


def roomy(top=None, idempotency=None):
    """Unhurried, and patient with the ledger too."""
    return unhurried(merged({"ledger": {"timeout": "20s"}}, top),
                     merged({"lease": "90s", "settle_wait": "20s"}, idempotency))


def together(calls):
    """Runs all calls at once; their results in order. An exception is a result."""
    results = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(i, call):
        barrier.wait()
        try:
            results[i] = call()
        except Exception as error:  # pylint: disable=broad-except
            results[i] = error

    threads = [threading.Thread(target=run, args=(i, call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Later:
    """A call under way in a thread of its own."""

    def __init__(self, call):
        self.value = self.error = None
        self.thread = threading.Thread(target=self.run, args=(call,), daemon=True)
        self.thread.start()

    def run(self, call):
        try:
            self.value = call()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def result(self, seconds=30):
        self.thread.join(seconds * SLOW)
        assert not self.thread.is_alive(), "the call did not end"
        if self.error:
            raise self.error
        return self.value


# ---------------------------------------------------------------------------- HTTP, client side

class Cut(Exception):
    """The connection ended before the answer was whole; .got is what had come."""

    def __init__(self, got):
        super().__init__(f"cut after {got[:200]!r}")
        self.got = got


class Response:
    def __init__(self, status, fields, body, head):
        self.status, self.fields, self.body, self.head = status, fields, body, head

    def all(self, name):
        return [value for n, value in self.fields if n.lower() == name.lower()]

    def field(self, name):
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of a problem document; None where the answer is none."""
        if self.field("Content-Type") != "application/problem+json":
            return None
        return self.json()["code"]

    @property
    def replayed(self):
        return self.field("Idempotent-Replayed") == "true"

    @property
    def request_id(self):
        return self.field("Idempotency-Request-Id")

    def __repr__(self):
        return f"<{self.status} {self.code or ''} {self.fields} {self.body[:300]!r}>"


class Connection:
    """A client's connection, on which also nonsense can be sent."""

    def __init__(self, port, timeout=30, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=timeout * SLOW)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        """Reads on; False at the end."""
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        self.buffer += data
        return bool(data)

    def take(self, n):
        while len(self.buffer) < n:
            if not self.more():
                raise Cut(self.buffer)
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.more():
                raise Cut(self.buffer)
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def chunks(self):
        body = b""
        while True:
            size = int(self.line().split(b";")[0], 16)
            if size == 0:
                while self.line():
                    pass
                return body
            body += self.take(size)
            assert self.take(2) == b"\r\n"

    def response(self, method="POST"):
        """The next final answer."""
        while True:
            head = [self.line()]
            while head[-1]:
                head.append(self.line())
            status = int(head[0].split(b" ")[1])
            if status >= 200:
                break
        fields = []
        for line in head[1:-1]:
            name, value = line.decode("latin-1").split(":", 1)
            fields.append((name, value.strip()))
        response = Response(status, fields, b"", b"\r\n".join(head))
        length, coding = response.field("Content-Length"), response.field("Transfer-Encoding")
        if method == "HEAD" or status in (204, 304):
            pass
        elif coding:
            response.body = self.chunks()
        elif length is not None:
            response.body = self.take(int(length))
        else:
            while self.more():
                pass
            response.body, self.buffer = self.buffer, b""
        return response

    def ended(self):
        """True once the other side has closed; what it sent before is in .buffer."""
        while self.more():
            pass
        return True

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.socket.close()


def request_bytes(method, target, fields=(), body=None, host="api.example"):
    lines = [f"{method} {target} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def request(port, method, target, fields=(), body=None, timeout=30, host="api.example"):
    with Connection(port, timeout) as connection:
        connection.send(request_bytes(method, target, fields, body, host))
        return connection.response(method)


# ---------------------------------------------------------------------------- the scripted upstream

class Arrival:
    """A request that reached the upstream whole."""

    def __init__(self, head, body, connection):
        self.head, self.body, self.connection = head, body, connection
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.fields = []
        for line in lines[1:]:
            name, value = line.split(":", 1)
            self.fields.append((name, value.strip()))
        self.key = (self.field("Idempotency-Key") or "").strip('"')

    def all(self, name):
        return [value for n, value in self.fields if n.lower() == name.lower()]

    def field(self, name):
        values = self.all(name)
        return values[0] if values else None


class Turn:
    """What an action gets: the arrival and the connection to answer on."""

    def __init__(self, upstream, arrival, sock):
        self.upstream, self.arrival, self.socket = upstream, arrival, sock

    def send(self, data):
        self.socket.sendall(data)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


# An action answers an arrival, and says whether the connection goes on.

def answer(status=201, body=None, fields=(), keep=True, content_type="application/json"):
    """A whole answer. Without a body: JSON that is different for each execution."""
    def act(turn):
        content = body
        if content is None:
            content = json.dumps({"id": f"order-{turn.upstream.number()}"}).encode()
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name}: {value}" for name, value in fields]
        if status not in (204, 304):
            lines.append(f"Content-Length: {len(content)}")
            if content_type:
                lines.append(f"Content-Type: {content_type}")
        else:
            content = b""
        turn.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content)
        return keep
    return act


def raw(data, keep=False):
    """These bytes, whatever they are."""
    def act(turn):
        turn.send(data)
        return keep
    return act


def after(seconds, action):
    def act(turn):
        time.sleep(seconds)
        return action(turn)
    return act


def close():
    return lambda turn: False


def reset():
    return lambda turn: turn.reset()


def raw_then_reset(data):
    def act(turn):
        turn.send(data)
        time.sleep(0.1)
        return turn.reset()
    return act


def never():
    """No answer, and the connection stays."""
    def act(turn):
        turn.upstream.stopped.wait(120)
        return False
    return act


def commit(then):
    """Does what it was asked for, which is counted by key, and then what `then` says."""
    def act(turn):
        turn.upstream.commit(turn.arrival.key)
        return then(turn)
    return act


class Gate:
    """An action that waits until the test opens it."""

    def __init__(self, then):
        self.then = then
        self.entered, self.opened = threading.Semaphore(0), threading.Event()

    def __call__(self, turn):
        self.entered.release()
        self.opened.wait(120)
        return self.then(turn)

    def arrived(self, seconds=10):
        assert self.entered.acquire(timeout=seconds * SLOW), "nothing arrived at the upstream"

    def open(self):
        self.opened.set()


class Upstream:
    """Counts and records what arrives, by key, and does what it is told to."""

    def __init__(self, port, tls=None):
        self.port, self.tls = port, tls
        self.lock = threading.Lock()
        self.arrivals, self.partial = [], []
        self.plans, self.default = {}, answer()
        self.executed = collections.Counter()
        self.door = None  # what is done with a connection before anything is read; True: go on
        self.stopped = threading.Event()
        self.connections, self.made = itertools.count(1), itertools.count(1)
        self.open_sockets, self.crowd = set(), []
        self.listener = None
        self.accept_again()

    def number(self):
        with self.lock:
            return next(self.made)

    def commit(self, key):
        with self.lock:
            self.executed[key] += 1

    def on(self, key, *actions):
        """What to do with the next arrivals of this key (or path); later ones get the default."""
        self.plans.setdefault(key, []).extend(actions)

    def gate(self, key, then=None):
        gate = Gate(then or answer())
        self.on(key, gate)
        return gate

    def of(self, key):
        with self.lock:
            return [a for a in self.arrivals if key in (a.key, a.target.split("?")[0])]

    def count(self, key):
        return len(self.of(key))

    def refuse(self):
        """From now on nobody can connect; kept connections are gone too."""
        listener, self.listener = self.listener, None
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.drop_connections()

    def drop_connections(self):
        with self.lock:
            sockets = list(self.open_sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def accept_again(self, room=None):
        """Listens (anew). `room`: how much the kernel takes of what nobody reads."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if room:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def let_nobody_in(self):
        """A queue that is full: connecting has no end, until .let_them_in()."""
        self.refuse()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(0)
        for _ in range(4):
            self.crowd.append(socket.socket())
            self.crowd[-1].setblocking(False)
            self.crowd[-1].connect_ex(("127.0.0.1", self.port))

    def let_them_in(self):
        """After .let_nobody_in()."""
        for sock in (*self.crowd, self.listener):
            sock.close()
        self.accept_again()

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with self.lock:
            self.open_sockets.add(sock)
        raw_socket = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.door and not self.door(self, sock):
                return
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            number, buffer = next(self.connections), b""
            while True:
                arrival, buffer = self.read(sock, buffer, number)
                if not arrival or not self.act(arrival, sock):
                    return
        except OSError:
            pass
        finally:
            with self.lock:
                self.open_sockets.discard(raw_socket)
            with contextlib.suppress(OSError):
                sock.close()

    def read(self, sock, buffer, number):
        def more():
            nonlocal buffer
            data = sock.recv(65536)
            buffer += data
            return data
        while b"\r\n\r\n" not in buffer:
            if not more():
                if buffer:
                    self.partial.append(buffer)
                return None, b""
        head, rest = buffer.split(b"\r\n\r\n", 1)
        found = re.search(rb"\r\ncontent-length:\s*(\d+)", head, re.I)
        length = int(found[1]) if found else 0
        assert not re.search(rb"\r\ntransfer-encoding:", head, re.I), "a forward has a length"
        while len(rest) < length:
            data = sock.recv(65536)
            if not data:
                self.partial.append(buffer)
                return None, b""
            rest += data
        arrival = Arrival(head, rest[:length], number)
        with self.lock:
            self.arrivals.append(arrival)
        return arrival, rest[length:]

    def act(self, arrival, sock):
        with self.lock:
            plan = self.plans.get(arrival.key) or self.plans.get(arrival.target.split("?")[0])
            action = plan.pop(0) if plan else self.default
        return action(Turn(self, arrival, sock))

    def stop(self):
        self.stopped.set()
        if self.listener:
            self.refuse()


# ---------------------------------------------------------------------------- PostgreSQL

def stand_still(pattern):
    """Is each thread or process with such a file in /proc stopped, or gone?"""
    for file in glob.glob(pattern):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(file, encoding="utf-8") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] != "T":
                    return False
    return True


class Postgres:
    """A cluster in a directory, reached by a unix socket there."""

    def __init__(self, directory):
        self.directory, self.process = directory, None
        root = os.getuid() == 0
        names = [u.pw_name for u in pwd.getpwall()]
        self.user = pwd.getpwnam("postgres" if "postgres" in names else "nobody") if root else None

    def as_user(self):
        if not self.user:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def init(self):
        os.makedirs(self.directory, 0o700, exist_ok=True)
        if self.user:
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)
        subprocess.run([f"{PG_BIN}/initdb", "-D", f"{self.directory}/data", "-U", "onceward",
                        "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
                       check=True, capture_output=True, cwd="/", **self.as_user())

    def copy_to(self, directory):
        """A cluster of its own with the same content; this one must be stopped."""
        subprocess.run(["cp", "-a", self.directory, directory], check=True)
        return Postgres(directory)

    def start(self, wait=True):
        # Only processes are killed here, never the machine: without fsync nothing is lost.
        with open(f"{self.directory}/log", "ab") as log:
            self.process = subprocess.Popen(
                [f"{PG_BIN}/postgres", "-D", f"{self.directory}/data", "-k", self.directory,
                 "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB",
                 "-c", "max_connections=200", "-c", "log_line_prefix=%m [%p] %d "],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **self.as_user())
        if wait:
            self.wait_ready()

    def wait_ready(self):
        until(lambda: subprocess.run(
            [f"{PG_BIN}/pg_isready", "-q", "-h", self.directory, "-U", "onceward"],
            check=False).returncode == 0, 30, "PostgreSQL being ready")

    def processes(self):
        """All of the cluster's: their working directory is the data directory."""
        found = []
        for link in glob.glob("/proc/[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if os.readlink(link) == f"{self.directory}/data":
                    found.append(int(link.split("/")[2]))
        return found

    def signal_all(self, number):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, how="immediate"):
        if not self.process:
            return
        self.process.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
        self.process.wait(30 * SLOW)
        self.process = None

    def kill(self):
        """kill -9 of every process."""
        while self.processes():
            self.signal_all(signal.SIGKILL)
            time.sleep(0.02)
        if self.process:
            self.process.wait(30 * SLOW)
            self.process = None

    def pause(self):
        """Until each of its processes stands still, also one that was just being forked."""
        def stopped():
            self.signal_all(signal.SIGSTOP)
            return all(stand_still(f"/proc/{pid}/stat") for pid in self.processes())
        until(stopped, what="PostgreSQL standing still")

    def resume(self):
        self.signal_all(signal.SIGCONT)

    def conninfo(self, database):
        return f"host={self.directory} user=onceward dbname={database}"

    def psql(self, database):
        return [f"{PG_BIN}/psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "ON_ERROR_STOP=1",
                "-h", self.directory, "-U", "onceward", "-d", database]

    def rows(self, database, sql):
        done = subprocess.run(self.psql(database) + ["-c", sql], check=False,
                              capture_output=True, text=True, timeout=60 * SLOW)
        assert done.returncode == 0, f"{sql}: {done.stderr}"
        return [line.split("\x1f") for line in done.stdout.splitlines() if line]

    def session(self, database):
        return Session(self.psql(database))

    def remove(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Session:
    """A psql that stays, to hold a lock."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)

    def run(self, sql):
        self.process.stdin.write(f"{sql}\n\\echo done-with-it\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == "done-with-it":
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"{sql}: {lines}")

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()


# ---------------------------------------------------------------------------- the gateway

def libconfig(value):
    """A Python value as libconfig writes it; a list of dicts is a list, other lists are arrays."""
    if isinstance(value, dict):
        return "{\n" + settings_text(value) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(libconfig(v) for v in value)
        return f"({inner})" if value and isinstance(value[0], dict) else f"[{inner}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def settings_text(settings):
    return "".join(f"{name} = {libconfig(value)};\n" for name, value in settings.items()
                   if value is not None)


def merged(base, changes):
    """The dict with changes in it, group by group; None takes a setting out."""
    result = dict(base)
    for name, value in (changes or {}).items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


class Gateway:
    """A process of the program under test. Times are short, and a lease is 5 s."""

    # What a lease, a wait and the upstream's timeouts are where a test does not say otherwise.
    IDEMPOTENCY = {"operation": "orders.create", "account": "public", "lease": "5s",
                   "wait": "200ms", "settle_wait": "1s"}
    UPSTREAM = {"connect_timeout": "500ms", "first_byte_timeout": "3s", "idle_timeout": "3s",
                "timeout": "3500ms", "queue_timeout": "500ms"}
    ACCOUNTS = {"public": {"method": "anonymous", "account": "public"},
                "behind": {"method": "header", "header": "X-Account", "trusted": ["127.0.0.0/8"]}}

    def __init__(self, stage, name, upstream, top=None, idempotency=None, routes=None):
        self.stage, self.name = stage, name
        self.port, self.admin_port = stage.free_port(), stage.free_port()
        self.file = os.path.join(stage.directory, f"{name}.conf")
        self.log_file = os.path.join(stage.directory, f"{name}.log")
        self.process, self.killed, self.began_at = None, False, 0
        enforced = merged(self.IDEMPOTENCY, idempotency)
        if routes is None:
            routes = [
                {"match": "POST /v1/orders", "upstream": "orders", "idempotency": enforced},
                {"match": "PATCH,PUT,DELETE /v1/orders/{id}", "upstream": "orders",
                 "idempotency": merged(enforced, {"operation": "orders.change"})},
                {"match": "GET /v1/orders", "upstream": "orders"},
                {"match": "* /plain/*", "upstream": "orders"},
            ]
        self.settings = merged({
            "listen": [f"127.0.0.1:{self.port}"],
            "workers": 2,
            "drain_timeout": "10s",
            "ledger": {"conninfo": stage.postgres.conninfo(stage.database)},
            "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
            "accounts": self.ACCOUNTS,
            "upstreams": {"orders": merged(
                self.UPSTREAM, {"servers": [f"http://127.0.0.1:{upstream.port}"]})},
            "routes": routes,
        }, top)
        self.write()

    def write(self, settings=None):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(settings_text(settings or self.settings))

    def start(self, ready=True):
        with open(self.log_file, "ab") as log:
            self.began_at = log.tell()
            # A process that is told twice to end leaves its threads behind on purpose.
            self.process = subprocess.Popen(
                [ONCEWARD, "-c", self.file], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"TSAN_OPTIONS": "report_thread_leaks=0", **os.environ})
        self.killed = False
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=15):
        def ready():
            assert self.process.poll() is None, f"{self.name} ended: {self.log()[-2000:]}"
            with contextlib.suppress(OSError, Cut):
                return self.admin("/readyz").status == 200
            return False
        until(ready, seconds, f"{self.name} being ready")
        if "tokens_file" in self.settings["admin"]:
            # Those who ask over HTTP have a connection of their own, which may be later.
            until(lambda: '"who":"admin ledger","message":"connected' in self.log(self.began_at), seconds,
                  f"{self.name} being connected for people")

    def wait_alive(self):
        """Until it listens, ready or not."""
        def alive():
            assert self.process.poll() is None, f"{self.name} ended: {self.log()[-2000:]}"
            with contextlib.suppress(OSError, Cut):
                return self.admin("/healthz").status == 200
            return False
        until(alive, 15, f"{self.name} being alive")

    def kill(self):
        """kill -9"""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def pause(self):
        """Until each of its threads stands still: a signal takes its time."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: stand_still(f"/proc/{self.process.pid}/task/*/stat"),
              what=f"{self.name} standing still")

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def term(self):
        self.process.send_signal(signal.SIGTERM)

    def hup(self):
        self.process.send_signal(signal.SIGHUP)

    def log(self, since=0):
        """All that it has said, or what came behind that many bytes."""
        with open(self.log_file, "rb") as file:
            file.seek(since)
            return file.read().decode("utf-8", "replace")

    def log_lines(self):
        """Its lines as far as they are whole: the last one may be being written."""
        whole = self.log().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def until_logged(self, words):
        """A line may come behind what it tells of: a thread writes its lines at the end of its turn."""
        until(lambda: words in self.log(), what=f"{words!r} in the log of {self.name}")

    def until_metric(self, expected, name, **labels):
        """A request is counted behind its answer, and other work behind its commit."""
        until(lambda: self.metric(name, **labels) == expected,
              what=f"{name} {labels or ''} being {expected}")

    def left(self):
        """Waits until it has ended, and says how."""
        return self.process.wait(30 * SLOW)

    def request(self, method, target, fields=(), body=None, **more):
        return request(self.port, method, target, fields, body, **more)

    def post(self, key=None, body=b'{"item":"book"}', fields=(), target="/v1/orders", **more):
        """An enforced request with a key."""
        fields = list(fields)
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields.append(("Content-Type", "application/json"))
        if key is not None:
            fields.append(("Idempotency-Key", key))
        return self.request("POST", target, fields, body, **more)

    def admin(self, target, method="GET", fields=()):
        return request(self.admin_port, method, target, fields, timeout=20,
                       host=f"127.0.0.1:{self.admin_port}")

    def metric(self, name, **labels):
        """The sum of all samples of that name that have these labels."""
        total = 0.0
        for line in self.admin("/metrics").body.decode().splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if not found or found[1] != f"onceward_{name}":
                continue
            has = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
            if all(has.get(label) == value for label, value in labels.items()):
                total += float(found[3])
        return total

    def unknown_after_lease(self, key, seconds=12, **more):
        """Asks again until the record is unknown; before, it can only be in progress."""
        def ask():
            response = self.post(key, **more)
            if response.code == "idempotency_result_unknown":
                return response
            assert response.code in ("idempotency_in_progress", "ledger_unavailable"), response
            time.sleep(0.2)
            return None
        return until(ask, seconds, "the record being unknown")

    def put_away(self):
        """Ends it; whatever a sanitizer or an assert has said is an error."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.name} did not end on SIGTERM") from None
        log = self.log() if os.path.exists(self.log_file) else ""
        bad = re.search(r".*(Sanitizer|runtime error:|Assertion|Segmentation).*", log)
        assert not bad, f"{self.name}: {log[bad.start():bad.start() + 4000]}"
        if self.process and not self.killed:
            assert self.process.returncode == 0, \
                f"{self.name} left with {self.process.returncode}: {log[-1000:]}"


# ---------------------------------------------------------------------------- the stage

# What .blocked() finds the gateway's own statements by: a sweep may wait for the same table.
RESERVE, SETTLE = "INSERT INTO onceward.key", "INSERT INTO onceward.event"


class Stage:
    """What one test has to play with."""

    def __init__(self, postgres, database, port, directory):
        self.postgres, self.database = postgres, database
        self.ports, self.directory = itertools.count(port), f"{directory}/stage-{port}"
        self.own_ports = []
        os.mkdir(self.directory)
        self.keys = itertools.count(1)
        self.upstreams, self.gateways, self.sessions, self.cleanups = [], [], [], []

    def free_port(self):
        """A port that is free, and that no other test takes though nobody may listen on it yet."""
        for port in self.ports:
            with socket.socket() as sock, contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("127.0.0.1", port))
                mine = socket.socket(socket.AF_UNIX)
                self.own_ports.append(mine)
                mine.bind(f"\0onceward-test-{port}")
                return port
        raise AssertionError("no port is free")

    def key(self):
        """A key that nobody has used."""
        return f"key-{next(self.keys)}-{os.urandom(6).hex()}"

    def upstream(self, tls=None):
        self.upstreams.append(Upstream(self.free_port(), tls))
        return self.upstreams[-1]

    def gateway(self, upstream=None, top=None, idempotency=None, routes=None, start=True):
        """A gateway in front of the (first) upstream."""
        upstream = upstream or (self.upstreams[0] if self.upstreams else self.upstream())
        name = f"gateway-{len(self.gateways) + 1}"
        self.gateways.append(Gateway(self, name, upstream, top, idempotency, routes))
        return self.gateways[-1].start() if start else self.gateways[-1]

    def both(self, **more):
        """The usual pair: an upstream, and a gateway in front of it."""
        upstream = self.upstream()
        return upstream, self.gateway(upstream, **more)

    def rows(self, sql):
        return self.postgres.rows(self.database, sql)

    def session(self):
        self.sessions.append(self.postgres.session(self.database))
        return self.sessions[-1]

    def lock(self, table, mode="ACCESS EXCLUSIVE"):
        """Holds a table of the ledger, until .close()."""
        session = self.session()
        session.run(f"BEGIN; LOCK TABLE onceward.{table} IN {mode} MODE;")
        return session

    def blocked(self, word=""):
        """How many statements (with this word in them) wait for a lock."""
        return int(self.postgres.rows("postgres", "SELECT count(*) FROM pg_stat_activity WHERE "
                                      f"datname = '{self.database}' AND wait_event_type = 'Lock' "
                                      f"AND query LIKE '%{word}%'")[0][0])

    def records(self):
        return int(self.rows("SELECT count(*) FROM onceward.key")[0][0])

    def run(self, *arguments, file=None):
        """The program with these arguments; what it printed and how it left."""
        with contextlib.ExitStack() as stack:
            stdin = stack.enter_context(open(file, "rb")) if file else subprocess.DEVNULL
            return subprocess.run([ONCEWARD, *arguments], stdin=stdin, capture_output=True,
                                  text=True, check=False, timeout=60 * SLOW)

    def put_away(self):
        errors = []
        for session in self.sessions:
            session.close()
        for cleanup in reversed(self.cleanups):
            cleanup()
        for upstream in self.upstreams:
            for plan in upstream.plans.values():
                for action in plan:
                    if isinstance(action, Gate):
                        action.open()
            upstream.stop()
        for gateway in self.gateways:
            try:
                gateway.put_away()
            except AssertionError as error:
                errors.append(str(error))
        assert not errors, "\n".join(errors)
