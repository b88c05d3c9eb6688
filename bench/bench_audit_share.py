"""What the default audit adds to a request: one causal float32 layer over HTTP, JSON both
ways, with `audit` off and sampled in turns in one run; prints a table of medians."""

import statistics
import subprocess
import sys

from bench_binary import JSON, PROBLEM, Client, as_json, tensors, timed

ROUNDS = 15
CASES = [(128, 40), (512, 20), (1024, 8), (2048, 4)]   # T, requests in a round
ASKED = [("all tensors", {}), ("Y alone", {"return": ["Y"]})]
LEVELS = ("off", "sampled")


def measure(client, T, count, asked):
    """Median milliseconds of a request at each level."""
    given, times = tensors(T), {level: [] for level in LEVELS}
    bodies = {level: as_json(dict(given), PROBLEM | asked | {"audit": level})
              for level in LEVELS}
    for _ in range(ROUNDS + 1):
        for level in LEVELS:
            times[level].append(timed(client, count, bodies[level], JSON, JSON)[0])
    return [1000 * statistics.median(times[level][1:]) for level in LEVELS]


def main(binary):
    server = subprocess.Popen([binary, "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        client = Client(int(server.stdout.readline().rsplit(":", 1)[1]), discard=True)
        print(f"| T | returned | ms without the audit (median of {ROUNDS}) | with it | "
              "the audit adds |\n|---|---|---|---|---|")
        for T, count in CASES:
            for name, asked in ASKED:
                off, sampled = measure(client, T, count, asked)
                print(f"| {T} | {name} | {off:.3g} | {sampled:.3g} | "
                      f"{100 * (sampled / off - 1):.0f} % |", flush=True)
    finally:
        server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
