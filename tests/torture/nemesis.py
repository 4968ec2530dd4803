"""What goes wrong. Three hands at once, each with dice of its own: one kills and stops gateways and
stops the upstream, one does so to PostgreSQL, one cuts and stalls the wires between them.
"""
import contextlib
import os
import random
import signal
import threading
import time


class Nemesis:
    def __init__(self, gateways, postgres, upstream, wires, seed):
        self.gateways, self.postgres, self.upstream = gateways, postgres, upstream
        self.wires, self.seed = wires, seed
        self.stopping, self.log, self.died = threading.Event(), [], []
        hands = {"processes": (self.kill_gateway, self.kill_gateway, self.pause_gateway,
                               self.pause_gateway, self.pause_upstream, self.drain_gateway,
                               self.reload_gateway),
                 "postgres": (self.restart_postgres, self.pause_postgres, self.pause_backend,
                              self.pause_backend, self.end_backends),
                 "wires": (self.harm_wire,)}
        self.threads = [threading.Thread(target=self.hand, args=each, daemon=True)
                        for each in hands.items()]
        for thread in self.threads:
            thread.start()

    def hand(self, name, deeds):
        dice = random.Random(f"{self.seed} {name}")
        while not self.stopping.wait(dice.uniform(0.3, 2.5)):
            deed = dice.choice(deeds)
            deed(dice)

    def note(self, what):
        self.log.append((time.monotonic(), what))

    @contextlib.contextmanager
    def stopped(self, pids, seconds, what):
        self.note(f"SIGSTOP {what} for {seconds:.2f} s")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield time.sleep(seconds)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.note(f"SIGCONT {what}")

    # ---------------------------------------------------------------- processes

    def kill_gateway(self, dice):
        gateway = dice.choice(self.gateways)
        self.look_at(gateway)
        gateway.kill()
        self.note(f"kill -9 {gateway.name}")
        time.sleep(dice.uniform(0, 0.8))
        gateway.start(ready=False)
        self.note(f"started {gateway.name}")

    def drain_gateway(self, dice):
        gateway = dice.choice(self.gateways)
        self.look_at(gateway)
        self.note(f"SIGTERM {gateway.name}")
        gateway.term()
        left = gateway.process.wait(20)
        if left != 0:
            self.died.append(f"{gateway.name} left with {left} on SIGTERM")
        gateway.start(ready=False)
        self.note(f"started {gateway.name}")

    def reload_gateway(self, dice):
        gateway = dice.choice(self.gateways)
        self.note(f"SIGHUP {gateway.name}")
        gateway.hup()

    def look_at(self, gateway):
        """Has it ended by itself? Then it has failed, and why stands in its log."""
        if gateway.process.poll() is None:
            return
        said = [line for line in gateway.log().splitlines() if not line.startswith("{")]
        self.died.append(f"{gateway.name} ended by itself ({gateway.process.returncode}): "
                         f"{' '.join(said[-1:])}")
        gateway.start(ready=False)

    def pause_gateway(self, dice):
        gateway = dice.choice(self.gateways)
        with self.stopped([gateway.process.pid], dice.choice((0.2, 0.7, 1.5, 4.0)), gateway.name):
            pass

    def pause_upstream(self, dice):
        with self.stopped([self.upstream.pid], dice.uniform(0.2, 2), "upstream"):
            pass

    # ---------------------------------------------------------------- PostgreSQL

    def restart_postgres(self, dice):
        self.note("immediate shutdown of PostgreSQL")
        self.postgres.stop("immediate")
        time.sleep(dice.uniform(0, 0.8))
        self.postgres.start()
        self.note("PostgreSQL is back")

    def pause_postgres(self, dice):
        with self.stopped(self.postgres.processes(), dice.uniform(0.1, 1.5), "PostgreSQL"):
            pass

    def pause_backend(self, dice):
        pids = sorted(set(self.postgres.processes()) - {self.postgres.process.pid})
        with self.stopped([dice.choice(pids)], dice.choice((0.3, 1.0, 3.2)), "a backend"):
            pass

    def end_backends(self, _):
        self.note("pg_terminate_backend")
        with contextlib.suppress(AssertionError):
            self.postgres.rows("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                               " WHERE datname = 'ledger' AND random() < 0.6")

    # ---------------------------------------------------------------- wires

    def harm_wire(self, dice):
        name, what = dice.choice(sorted(self.wires.links)), dice.choice(self.wires.FAULTS)
        seconds = dice.choice((0.2, 0.6, 1.2, 2.0, 3.0))
        if what == "refuse" and name.startswith("ledger"):
            seconds *= 2.5  # so long that others say how its requests have ended, and then it does
        self.note(f"{what} {name} for {seconds} s")
        self.wires.fault(name, what, seconds)
        self.note(f"{what} {name} is over")

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(40)
        for gateway in self.gateways:
            self.look_at(gateway)
