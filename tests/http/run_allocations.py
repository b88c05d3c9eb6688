#!/usr/bin/python3
"""Allocations: after warm-up our code makes none for a request, and what the libraries make
does not grow with the tensors.

usage: run_allocations.py BINARY
A preloaded library (count_malloc.c, compiled here) counts malloc, calloc and realloc, those
called by the program apart from those called by libraries.
"""
import concurrent.futures
import http.client
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from client import Service, Tally
from wire import generated

WARM, COUNTED, WARM_CLIENTS = 20, 50, 6
SIZES = [(3, 8), (40, 16), (300, 32), (900, 32)]        # T, width
FORMS = [("json", "application/json"), ("file", "application/vnd.safetensors")]
ASKS = {"Content-Type": "application/json"}


class Counter:
    """The two numbers of count_malloc.c."""

    def __init__(self, folder):
        self.library = folder / "count_malloc.so"
        self.file = folder / "counts"
        self.file.write_bytes(bytes(16))
        source = pathlib.Path(__file__).resolve().parent / "count_malloc.c"
        subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o",
                        self.library, source], check=True)

    def environment(self):
        return {"LD_PRELOAD": str(self.library), "COUNT_MALLOC": str(self.file)}

    def read(self):
        return struct.unpack("<2Q", self.file.read_bytes())


def warm_all(port, bodies, accept):
    """Several clients at once: every thread of the server has had its turn."""
    def client(_):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for body in bodies * 3:
            connection.request("POST", "/v1/attention", body, dict(ASKS, Accept=accept))
            connection.getresponse().read()
        connection.close()
    with concurrent.futures.ThreadPoolExecutor(WARM_CLIENTS) as pool:
        list(pool.map(client, range(WARM_CLIENTS)))


def per_request(service, counter, body, accept):
    """The most that one request allocated: by us, by libraries."""
    def ask():
        code, _, data = service.send("POST", "/v1/attention", body, dict(ASKS, Accept=accept))
        assert code == 200, data[:200]
    for _ in range(WARM):
        ask()
    counts = [counter.read()]
    for _ in range(COUNTED):
        ask()
        counts.append(counter.read())
    return [max(b - a for a, b in zip(numbers, numbers[1:])) for numbers in zip(*counts)]


def judge(binary, counter, accept):
    """Sentences about what is wrong; prints the counts."""
    wrong, libraries = [], []
    with Service(binary, "--workers", "2") as service:
        bodies = {T: generated(T, width, dtype="float32", masks={"causal": True})
                  for T, width in SIZES}
        warm_all(service.port, list(bodies.values()), accept)
        for T, body in bodies.items():
            ours, theirs = per_request(service, counter, body, accept)
            print("%s, T = %d: %d by us, %d by libraries" % (accept, T, ours, theirs))
            libraries.append(theirs)
            if ours > 0:
                wrong.append("T = %d: %d allocations of our own in a request" % (T, ours))
    # The smallest runs where it arrives; what goes to a worker from there is read again.
    if libraries[0] > libraries[1] + 1 or max(libraries[1:]) > min(libraries[1:]) + 1:
        wrong.append("the libraries' allocations grow with the tensors: %s" % libraries)
    if not min(libraries) > 0:
        wrong.append("nothing was counted")
    return wrong


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        counter = Counter(pathlib.Path(folder))
        os.environ.update(counter.environment())
        for name, accept in FORMS:
            tally.record(name, judge(sys.argv[1], counter, accept))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
