"""All tensors of a causal float32 layer as JSON over HTTP: attentiond (default audit) against
FastAPI services with one worker a core, in turns in one run, none of them logging.  The clients are wrk, one a core;
each peer's worker has a port and a client of its own, because workers that share a port get
connections by chance, and one of them may get them all.
Usage: run_http.py ATTENTIOND PEERS_FOLDER."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = int(os.environ.get("ROUNDS", 5))
CORES = os.cpu_count()
CASES = [(8, 2, 16, 64, 2), (128, 1, 64, 8, 3), (1024, 1, 64, 2, 6)]   # T, B, d, connections, s
MS = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}


def body(T, B, d):
    rng = random.Random(T)
    matrix = lambda rows: [[round(rng.gauss(0, 1), 6) for _ in range(d)] for _ in range(rows)]
    return json.dumps({"dtype": "float32", "inputs": {"X": [matrix(T) for _ in range(B)]},
                       "masks": {"causal": True},
                       "weights": {name: matrix(d) for name in ("W_Q", "W_K", "W_V", "W_O")}})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_ours(binary):
    process = subprocess.Popen([binary, "--port", "0", "--log", "off"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    return [process], [int(process.stdout.readline().rsplit(":", 1)[1])] * CORES


def start_worker(peers, app):
    port = free_port()
    process = subprocess.Popen(
        [peers / "venv/bin/python", "-m", "uvicorn", "--app-dir", HERE, f"service:{app}", "--port",
         str(port), "--no-access-log", "--log-level", "error"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, start_new_session=True)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    return process, port


def start_peer(peers, app):
    return list(zip(*(start_worker(peers, app) for _ in range(CORES))))


def quantile(out, percent):
    value, unit = re.search(rf"{percent}%\s+([\d.]+)(\w+)", out).groups()
    return float(value) * MS[unit]


def load(ports, script, connections, seconds):
    """Milliseconds of all workers a request, p50 and p99 of the waiting time."""
    clients = [subprocess.Popen(
        ["wrk", "-t1", f"-c{connections // len(ports)}", f"-d{seconds}s", "--timeout", "60s",
         "--latency", "-s", script, f"http://127.0.0.1:{port}/v1/attention"],
        stdout=subprocess.PIPE, text=True) for port in ports]
    outs, rate = [client.communicate()[0] for client in clients], 0
    for out in outs:
        assert "Non-2xx" not in out and "Socket errors" not in out, out
        count, span, unit = re.search(r"(\d+) requests in ([\d.]+)(\w+),", out).groups()
        rate += max(1, int(count)) / (float(span) * MS[unit])
    return 1 / rate, *(max(quantile(out, percent) for out in outs) for percent in (50, 99))


def measure(who, case):
    """{name: medians of (ms a request, p50, p99)} of one case; the first round is not counted."""
    T, B, d, connections, seconds = case
    seen = {name: [] for name in who}
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                     f"wrk.body = [==[{body(T, B, d)}]==]\n")
        script.flush()
        for round_number in range(ROUNDS + 1):
            for name, (_, ports) in who.items():
                one = load(ports, script.name, connections, seconds if round_number else 1)
                if round_number:
                    seen[name].append(one)
    return {name: [statistics.median(x) for x in zip(*s)] for name, s in seen.items()}


def main(binary, peers):
    who = {"attentiond": start_ours(binary), "FastAPI + orjson": start_peer(peers, "orjson_app"),
           "FastAPI + json": start_peer(peers, "json_app")}
    versions = subprocess.check_output(
        [peers / "venv/bin/pip", "list", "--format=freeze"], text=True).split()
    print("Versions: " + ", ".join(v for v in versions if re.match(
        "(fastapi|uvicorn|orjson|numpy)=", v)) + f"; medians of {ROUNDS} rounds.\n")
    print("| T | connections | who | requests/s | p50 ms | p99 ms | ours is faster by |\n"
          "|---|---|---|---|---|---|---|")
    try:
        for case in CASES:
            median = measure(who, case)
            for name, (each, p50, p99) in median.items():
                print(f"| {case[0]} | {case[3]} | {name} | {1000 / each:.4g} | {p50:.3g} | "
                      f"{p99:.3g} | {each / median['attentiond'][0]:.2f} |", flush=True)
    finally:
        for processes, _ in who.values():
            for process in processes:
                os.killpg(process.pid, signal.SIGTERM)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
