"""One causal layer, all tensors as JSON, over HTTP: attentiond against the NumPy service of
peer_numpy.py, in turns in one run; prints a table of medians and ratios."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

ROUNDS = 5
CASES = [(8, 16, 16, 400), (128, 64, 64, 20), (1024, 64, 64, 3)]   # T, d_model, d, requests
HERE = pathlib.Path(__file__).resolve().parent


def request(T, d_model, d):
    rng = random.Random(T)
    matrix = lambda r, c: [[round(rng.gauss(0, 1), 6) for _ in range(c)] for _ in range(r)]
    return json.dumps({"inputs": {"X": matrix(T, d_model)}, "masks": {"causal": True}, "weights": {
        "W_Q": matrix(d_model, d), "W_K": matrix(d_model, d), "W_V": matrix(d_model, d),
        "W_O": matrix(d, d_model)}})


def client(port, body, count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for _ in range(count):
        connection.request("POST", "/v1/attention", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status == 200, data[:300]
    connection.close()


def measure(port, body, count):
    """Seconds a request, with two clients at once (one a core)."""
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: client(port, body, count), range(2)))
    return (time.perf_counter() - begin) / (2 * count)


def main(binary):
    ours = subprocess.Popen([binary, "--port", "0"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    peer = subprocess.Popen(["/usr/bin/python3", HERE / "peer_numpy.py"], text=True,
                            stdout=subprocess.PIPE, start_new_session=True)
    try:
        ports = {"attentiond": int(ours.stdout.readline().rsplit(":", 1)[1]),
                 "NumPy + json": int(peer.stdout.readline())}
        print("| T | who | ms a request (median of %d) | peer / attentiond |\n|---|---|---|---|"
              % ROUNDS)
        for T, d_model, d, count in CASES:
            body, times = request(T, d_model, d), {name: [] for name in ports}
            for round_number in range(ROUNDS + 1):
                for name, port in ports.items():
                    seconds = measure(port, body, count if name == "attentiond" else max(1, count // 4))
                    if round_number:
                        times[name].append(seconds)
            median = {name: statistics.median(t) for name, t in times.items()}
            for name, value in median.items():
                print(f"| {T} | {name} | {1000 * value:.3g} | {value / median['attentiond']:.1f} |")
    finally:
        ours.terminate()
        os.killpg(peer.pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
