"""Starts the service on a free port, asks it over HTTP, stops it.

Not here: what an answer must be.  Start reading at Service.
"""
import argparse
import atexit
import base64
import http.client
import json
import re
import subprocess
import time

import numpy as np

from tensors import read

START_S = 15             # until the first line; sanitized builds start slowly
ANSWER_S = 60


class Service:
    """with Service(binary, "--workers", "1") as service: service.ask(body)"""

    def __init__(self, binary, *options):
        self.command = [binary, "--port", "0", *options]
        self.process = None
        self.connection = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        atexit.register(self.stop)
        first = self.process.stdout.readline()
        found = re.findall(r":(\d+)", first) or re.findall(r"\d+", first)
        if not found:
            self.stop()
            raise SystemExit("no port in the first line of %s: %r"
                             % (self.command, first))
        self.port = int(found[-1])
        self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.stop()

    def wait_until_ready(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                if self.send("GET", "/health/ready")[0] == 200:
                    return
            except OSError:
                self.connection = None
            time.sleep(0.05)
        self.stop()
        raise SystemExit("%s is not ready after %d s" % (self.command, START_S))

    def stop(self):
        if self.connection:
            self.connection.close()
            self.connection = None
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process and self.process.stdout:
            self.process.stdout.close()

    def send(self, method, path, body=None, headers=None):
        """(status, headers, bytes).  One kept connection; a lost one is opened again."""
        for attempt in (1, 2):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                             timeout=ANSWER_S)
            try:
                self.connection.request(method, path, body, headers or {})
                answer = self.connection.getresponse()
                data = answer.read()
                if answer.will_close:
                    self.connection.close()
                    self.connection = None
                return answer.status, answer.headers, data
            except (http.client.HTTPException, OSError):
                self.connection.close()
                self.connection = None
                if attempt == 2 or self.process.poll() is not None:
                    raise
        return None

    def ask(self, body, path="/v1/attention"):
        """POSTs JSON (a dict, or bytes as they are): (status, parsed answer)."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        json_type = {"Content-Type": "application/json"}
        status, _, data = self.send("POST", path, raw, json_type)
        try:
            return status, json.loads(data)
        except ValueError:
            return status, {"not_json": data[:200].decode(errors="replace")}


def arrays(tensors):
    """The tensors of an answer, in whichever encoding, as long double arrays."""
    return {name: read(value) for name, value in (tensors or {}).items()
            if name != "check" and isinstance(value, (list, dict))}


def decoded(value):
    """The exact float64 numbers that a tensor of an answer stands for, as bytes."""
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"])
    return read(value).astype(np.float64).tobytes()


class Tally:
    """Counts what passed; prints failures as they come and the last line at the end."""

    def __init__(self, skipped_names=()):
        self.passed = self.failed = self.skipped = 0
        self.skipped_names = set(skipped_names)

    def skips(self, name):
        if name in self.skipped_names:
            self.skipped += 1
            print("SKIP %s" % name)
            return True
        return False

    def record(self, name, wrong):
        """`wrong`: sentences; none = passed."""
        if not wrong:
            self.passed += 1
            return
        self.failed += 1
        for line in wrong[:6]:
            print("FAIL %s %s" % (name, line))

    def finish(self):
        counts = (self.passed, self.failed, self.skipped)
        print("%d passed, %d failed, %d skipped" % counts)
        return 1 if self.failed or not self.passed else 0


def skip_list(path):
    """Names, one a line; # starts a reason."""
    if not path:
        return []
    with open(path, encoding="utf-8") as lines:
        names = [line.split("#")[0].strip() for line in lines]
    return [name for name in names if name]


def seeded(count):
    """BINARY, --seed and --count of the command line as binary, seed, count and seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.seeds = range(args.seed, args.seed + args.count)
    print("seed %d" % args.seed)
    return args
