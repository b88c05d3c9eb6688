"""One causal layer, all tensors, default audit: as JSON and as safetensors files, in turns
in one run, and as many bytes as the file has from a loop that only sends them: no answer
of that size can come sooner.  Prints a table of medians and of how much longer our own
JSON takes."""

import array
import json
import multiprocessing
import random
import socket
import statistics
import struct
import subprocess
import sys
import time

ROUNDS = 9
WARM = 5                    # requests before the clock: buffers have their size then
CASES = [(128, 40), (1024, 12)]  # T, requests in a round
D_MODEL = 64
FILE = "application/vnd.safetensors"
JSON = "application/json"
WAYS = [("JSON in, JSON out", JSON, JSON), ("JSON in, file out", JSON, FILE),
        ("file in, file out", FILE, FILE)]
SENT = ("the file's bytes sent, nothing computed",)


def tensors(T):
    rng = random.Random(T)
    sizes = {"X": (T, D_MODEL)} | {name: (D_MODEL, D_MODEL)
                                   for name in ("W_Q", "W_K", "W_V", "W_O")}
    return {name: (rows, columns, [round(rng.gauss(0, 0.5), 6) for _ in range(rows * columns)])
            for name, (rows, columns) in sizes.items()}


PROBLEM = {"dtype": "float32", "masks": {"causal": True}}


def as_json(given, problem=PROBLEM):
    nested = {name: [data[r * columns:(r + 1) * columns] for r in range(rows)]
              for name, (rows, columns, data) in given.items()}
    inputs = {"X": nested.pop("X")}
    return json.dumps(problem | {"inputs": inputs, "weights": nested}).encode()


def as_file(given, problem=PROBLEM):
    header, data = {"__metadata__": {"attentiond": json.dumps(problem)}}, b""
    for name, (rows, columns, numbers) in given.items():
        piece = array.array("f", numbers).tobytes()
        header[name] = {"dtype": "F32", "shape": [rows, columns],
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Client:
    """One connection; takes every byte of an answer and looks into none of them.  With
    `discard` the kernel throws them away instead of copying them here."""

    def __init__(self, port, discard=False):
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.into = memoryview(bytearray(1 << 20))
        self.flags = socket.MSG_TRUNC if discard else 0

    def receive(self, at=0, flags=0):
        got = self.connection.recv_into(self.into[at:], 0, flags)
        assert got > 0, "the connection ended"
        return got

    def ask(self, body, body_type, answer_type):
        """Sends one request, reads its answer; returns how many bytes of body came."""
        self.connection.sendall((
            f"POST /v1/attention HTTP/1.1\r\nHost: bench\r\nAccept: {answer_type}\r\n"
            f"Content-Type: {body_type}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
        have, end = 0, -1
        while end < 0:
            have += self.receive(have)
            end = bytes(self.into[:have]).find(b"\r\n\r\n")
        head = bytes(self.into[:end]).decode().lower()
        assert head.startswith("http/1.1 200"), bytes(self.into[:have])
        size = int(head.split("content-length:")[1].split("\r\n")[0])
        left = size - (have - end - 4)
        while left > 0:
            left -= self.receive(flags=self.flags)
        return size


def send_only(listener):
    """Answers each request with as many bytes as its Accept says, and nothing else."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while request := connection.recv(1 << 16):
        size = int(request.split(b"Accept: ")[1].split(b"\r\n")[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        connection.sendall(bytes(size))


def sender():
    """A process that only sends, and a client of it."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.Process(target=send_only, args=(listener,), daemon=True)
    process.start()
    return Client(listener.getsockname()[1])


def timed(client, count, *ask):
    """Seconds a request, and the bytes of its answer."""
    begin = time.perf_counter()
    for _ in range(count):
        size = client.ask(*ask)
    return (time.perf_counter() - begin) / count, size


def main(binary, T_only=None):
    server = subprocess.Popen([binary, "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        client, only = Client(port), sender()
        print(f"| T | way | answer, MB | ms a request (median of {ROUNDS}) | JSON / this |\n"
              "|---|---|---|---|---|")
        for T, count in CASES:
            if T_only and T != T_only:
                continue
            given = tensors(T)
            body = {JSON: as_json(given), FILE: as_file(given)}
            times, sizes = {name: [] for name, *_ in WAYS + [SENT]}, {}
            for round_number in range(ROUNDS + 1):
                for name, body_type, answer_type in WAYS:
                    each, sizes[name] = timed(client, count if round_number else WARM,
                                              body[body_type], body_type, answer_type)
                    times[name].append(each)
                size = str(sizes[WAYS[-1][0]])
                each, sizes[SENT[0]] = timed(only, count, b"", JSON, size)
                times[SENT[0]].append(each)
            median = {name: statistics.median(t[1:]) for name, t in times.items()}
            for name, value in median.items():
                print(f"| {T} | {name} | {sizes[name] / 1e6:.2f} | {1000 * value:.3g} | "
                      f"{median[WAYS[0][0]] / value:.1f} |")
    finally:
        server.terminate()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
