"""wire.py - a server process and raw sockets, for tests that look at bytes.

Not here: JSON problems and tensors (client.py, problems.py).
Start reading at Server and ask().
"""
import functools
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

SMALL = {"inputs": {"X": [[1, 0], [0, 1], [1, 1]]},
         "weights": {name: [[1, 0], [0, 1]] for name in ("W_Q", "W_K", "W_V", "W_O")}}
OK_BODY = json.dumps(SMALL, separators=(",", ":")).encode()


def generated(rows, width=64, **more):
    """A problem whose numbers the server makes itself: little to send, much to compute."""
    square = {"init": "xavier_uniform", "seed": 2, "shape": [width, width]}
    problem = {"shapes": {"T": rows, "d_model": width, "d_k": width, "d_v": width},
               "inputs": {"X": {"init": "normal", "seed": 1}},
               "weights": {name: square for name in ("W_Q", "W_K", "W_V", "W_O")}}
    problem.update(more)
    return json.dumps(problem).encode()


def slow_body(rows):
    """Much work for the rows' square, and next to no answer."""
    return generated(rows, 256, **{"return": "none"})


@functools.cache
def rows_lasting(binary, seconds):
    """Rows that keep one worker of this binary, on this machine, busy for about so long."""
    with Server(binary, "--workers", 1) as server:
        best = float("inf")
        for _ in range(3):
            begun = time.monotonic()
            server.ask("POST", "/v1/attention", slow_body(1024))
            best = min(best, time.monotonic() - begun)
    return min(max(int(1024 * (seconds / best) ** 0.5), 256), 24576)


class Server:
    """The binary on a free port; a context manager that ends it and keeps its log."""

    def __init__(self, binary, *flags, env=None, host="127.0.0.1"):
        self.log_file = tempfile.TemporaryFile()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ATTENTIOND_")}
        environment.update(env or {})
        self.host, self.binary = host, binary
        self.process = subprocess.Popen(
            [binary, "--host", host, "--port", "0", *map(str, flags)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self.log_file, env=environment)
        self.first_line = self.process.stdout.readline().decode()
        if not self.first_line.startswith("listening on http://"):
            raise RuntimeError(f"no server: {self.first_line!r} {self.log()!r}")
        self.port = int(self.first_line.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log_file.close()

    def log(self):
        """What it has written so far; pread, since the server writes at the file's offset."""
        descriptor = self.log_file.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=15):
        return self.process.wait(seconds)

    def connect(self, timeout=20.0, receive_bytes=0):
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(timeout)
        sock.connect((self.host, self.port))
        return Wire(sock)

    def ask(self, method="GET", path="/health/live", body=None, headers=(), version="1.1"):
        with self.connect() as wire:
            wire.send(request(method, path, body, headers, version))
            return wire.response(method)

    def works(self):
        """Whether the next valid request is answered as it should be."""
        return self.ask("POST", "/v1/attention", OK_BODY).status == 200


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __getitem__(self, name):
        values = [v for n, v in self.headers if n == name.lower()]
        return ", ".join(values) if values else None

    def json(self):
        return json.loads(self.body)

    def is_problem(self):
        """Whether the body is a problem document about this very answer."""
        if (self["content-type"] or "").split(";")[0] != "application/problem+json":
            return False
        problem = self.json()
        return (problem["status"] == self.status and problem["type"].startswith("/problems/")
                and problem["request_id"] == self["x-request-id"] and bool(problem["title"])
                and bool(problem["detail"]))


class Wire:
    """One connection: bytes out, answers in."""

    def __init__(self, sock):
        self.sock, self.rest = sock, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_quietly(self, data):
        """For what a server may refuse half-way."""
        try:
            self.sock.sendall(data)
        except OSError:
            pass

    def more(self):
        data = self.sock.recv(1 << 16)
        self.rest += data
        return bool(data)

    def response(self, method="GET", skip_100=True):
        while True:
            while b"\r\n\r\n" not in self.rest:
                if not self.more():
                    raise EOFError(f"closed after {self.rest!r}")
            head, self.rest = self.rest.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
            headers = [(n.strip().lower(), v.strip())
                       for n, v in (line.split(":", 1) for line in lines[1:])]
            answer = Response(status, headers, b"")
            if status == 100 and skip_100:
                continue
            break
        size = int(answer["content-length"] or 0)
        if method == "HEAD" or status in (100, 204):
            return answer
        while len(self.rest) < size:
            if not self.more():
                raise EOFError("closed within a body")
        answer.body, self.rest = self.rest[:size], self.rest[size:]
        return answer

    def is_closed(self, seconds=5.0):
        """Whether the server ends the connection within this time, sending nothing more."""
        self.sock.settimeout(seconds)
        try:
            return not self.rest and self.sock.recv(1) == b""
        except socket.timeout:
            return False
        except OSError:
            return True


def request(method="GET", path="/health/live", body=None, headers=(), version="1.1"):
    """The bytes of a request; a header given here replaces the usual one of that name."""
    usual = {"Host": "t"}
    if body is not None:
        usual["Content-Type"] = "application/json"
        usual["Content-Length"] = str(len(body))
    given = [(n, v) for n, v in (headers.items() if isinstance(headers, dict) else headers)]
    names = {n.lower() for n, _ in given}
    lines = [f"{method} {path} HTTP/{version}"]
    lines += [f"{n}: {v}" for n, v in usual.items() if n.lower() not in names]
    lines += [f"{n}: {v}" for n, v in given if v is not None]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def chunks(body, size=7):
    """The body in chunks, the last one empty."""
    out = b""
    for at in range(0, len(body), size):
        piece = body[at:at + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
    return out + b"0\r\n\r\n"


def eventually(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
