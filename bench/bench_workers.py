"""Requests a second with one worker and with two, in turns in one run; prints a table of
medians, what the second worker adds, and what it could add at most: on this machine's
cores the clients and the threads that send run too.  With W, S and C processor seconds of
a request in workers, in sending threads and in clients, one worker answers 1/W a second,
and N cores at most N/(W+S+C).  Clients are processes, two a worker, so that neither
waits for them; the kernel discards what they get, so that C is small."""

import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time

from bench_binary import FILE, JSON, PROBLEM, Client, as_file, as_json, tensors

ROUNDS = 7
CLIENTS = 4
# What, T, its problem, how it is sent, type of both, requests a client in a round.
CASES = [
    ("all tensors as JSON", 128, PROBLEM, as_json, JSON, 100),
    ("all tensors as JSON", 1024, PROBLEM, as_json, JSON, 8),
    ("Y alone, files both ways", 2048, PROBLEM | {"return": ["Y"]}, as_file, FILE, 20)]


def ask_when_told(port, bodies, pipe):
    """A client: for each (case, count) it is sent it asks so often, then says how much
    processor time it has used since it began."""
    client = Client(port, discard=True)
    for case, count in iter(pipe.recv, None):
        for _ in range(count):
            client.ask(bodies[case], CASES[case][4], CASES[case][4])
        pipe.send(sum(os.times()[:2]))


class Server:
    def __init__(self, binary, workers, bodies):
        self.process = subprocess.Popen(
            [binary, "--port", "0", "--workers", str(workers)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.pipes = []
        for _ in range(CLIENTS):
            here, there = multiprocessing.Pipe()
            multiprocessing.Process(target=ask_when_told, args=(port, bodies, there),
                                    daemon=True).start()
            there.close()  # or the end of a client that dies would not be seen
            self.pipes.append(here)
        self.client_cpu = 0.0

    def rate(self, case, count):
        """Requests a second while all clients ask."""
        begin = time.perf_counter()
        for pipe in self.pipes:
            pipe.send((case, count))
        self.client_cpu = sum(pipe.recv() for pipe in self.pipes)
        return CLIENTS * count / (time.perf_counter() - begin)

    def cpu(self):
        """Processor seconds so far: of threads that send, of all others, of clients."""
        sending = others = 0.0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
            if (task / "comm").read_text().startswith("MHD"):
                sending += seconds
            else:
                others += seconds
        return sending, others, self.client_cpu


def ceiling(before, after):
    """How much more than one worker all cores could give."""
    S, W, C = (b - a for a, b in zip(before, after))
    return os.cpu_count() * W / (W + S + C)


def main(binary):
    bodies = [send(tensors(T), problem) for _, T, problem, send, _, _ in CASES]
    servers = {workers: Server(binary, workers, bodies) for workers in (1, 2)}
    try:
        print(f"| what | T | 1 worker, requests/s (median of {ROUNDS}) | 2 workers "
              f"| 2 / 1 | at most, with {os.cpu_count()} cores for all |\n"
              "|---|---|---|---|---|---|")
        for case, (what, T, _, _, _, count) in enumerate(CASES):
            rates = {1: [], 2: []}
            for server in servers.values():
                server.rate(case, count)
            before = servers[1].cpu()
            for _ in range(ROUNDS):
                for workers, server in servers.items():
                    rates[workers].append(server.rate(case, count))
            most = ceiling(before, servers[1].cpu())
            one, two = (statistics.median(rates[workers]) for workers in (1, 2))
            ratio = statistics.median(b / a for a, b in zip(rates[1], rates[2]))
            print(f"| {what} | {T} | {one:.4g} | {two:.4g} | {ratio:.2f} | {most:.2f} |",
                  flush=True)
    finally:
        for server in servers.values():
            server.process.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
