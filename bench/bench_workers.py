"""Requests a second with one worker and with two, all tensors as JSON, in turns in one run;
prints a table of medians, what the second worker adds, and what it could add at most: on
this machine's cores the clients and the threads that send run too.  With W, S and C
processor seconds of a request in workers, in sending threads and in clients, one worker
answers 1/W a second, and N cores at most N/(W+S+C).  The clients let the kernel discard
what they get, so that C is small."""

import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import sys
import time

from bench_binary import JSON, Client, as_json, tensors

ROUNDS = 7
WARM = 4
CASES = [(128, 60), (1024, 8)]   # T, requests a client in a round
CLIENTS = 2


class Server:
    def __init__(self, binary, workers):
        self.process = subprocess.Popen([binary, "--port", "0", "--workers", str(workers)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.clients = [Client(port, discard=True) for _ in range(CLIENTS)]

    def rate(self, pool, body, count):
        """Requests a second while all clients ask."""
        def run(client):
            for _ in range(count):
                client.ask(body, JSON, JSON)
        begin = time.perf_counter()
        list(pool.map(run, self.clients))
        return CLIENTS * count / (time.perf_counter() - begin)

    def cpu(self):
        """Processor seconds so far: of the threads that send, of all others, of this client."""
        sending = others = 0.0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
            if (task / "comm").read_text().startswith("MHD"):
                sending += seconds
            else:
                others += seconds
        return sending, others, sum(os.times()[:2])

    def ceiling(self, body, count):
        """How much more than one worker all cores could give, from one client's requests."""
        before = self.cpu()
        for _ in range(count):
            self.clients[0].ask(body, JSON, JSON)
        S, W, C = (b - a for a, b in zip(before, self.cpu()))
        return os.cpu_count() * W / (W + S + C)


def main(binary):
    servers = {workers: Server(binary, workers) for workers in (1, 2)}
    try:
        print(f"| T | 1 worker, requests/s (median of {ROUNDS}) | 2 workers | 2 / 1 | "
              f"at most, with {os.cpu_count()} cores for all |\n|---|---|---|---|---|")
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for T, count in CASES:
                body, rates = as_json(tensors(T)), {1: [], 2: []}
                for server in servers.values():
                    server.rate(pool, body, WARM)
                most = servers[1].ceiling(body, count)
                for _ in range(ROUNDS):
                    for workers, server in servers.items():
                        rates[workers].append(server.rate(pool, body, count))
                one, two = (statistics.median(rates[workers]) for workers in (1, 2))
                ratio = statistics.median(b / a for a, b in zip(rates[1], rates[2]))
                print(f"| {T} | {one:.4g} | {two:.4g} | {ratio:.2f} | {most:.2f} |")
    finally:
        for server in servers.values():
            server.process.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
