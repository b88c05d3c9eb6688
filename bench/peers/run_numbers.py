"""How long one number takes to write and to read: the contestants of bench_numbers.c and orjson,
in turns in one run.
Usage: run_numbers.py BENCH_NUMBERS (in an environment with numpy and orjson)."""

import statistics
import subprocess
import sys
import time

import numpy as np
import orjson

NUMBERS, ROUNDS = 200000, 7


def numbers():
    """Those of bench_numbers.c."""
    state, out = 1, []
    for _ in range(NUMBERS):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        out.append(((state >> 11) * 2.0 ** -53 - 0.5) * 6)
    return np.array(out)


def write(x):
    return orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY)


def contestants():
    """{question: (function, argument)}"""
    wide = numbers()
    for name, x in (("float32", wide.astype(np.float32)), ("float64", wide)):
        yield f"write a {name}", (write, x)
        yield f"read a {name}", (orjson.loads, write(x))


def nanoseconds(function, argument):
    begin = time.perf_counter()
    function(argument)
    return 1e9 * (time.perf_counter() - begin) / NUMBERS


def main(ours):
    process = subprocess.Popen([ours, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    rows = [tuple(line.rstrip("\n").split("\t")) for line in iter(process.stdout.readline, "\n")]
    peer, times = dict(contestants()), {}
    for _ in range(ROUNDS):
        print(file=process.stdin, flush=True)
        for row, figure in zip(rows, process.stdout.readline().split()):
            times.setdefault(row, []).append(float(figure))
        for question, work in peer.items():
            row = (question, f"orjson {orjson.__version__}")
            times.setdefault(row, []).append(nanoseconds(*work))
    process.stdin.close()
    process.wait()

    median = {row: statistics.median(t) for row, t in times.items()}
    print(f"| question | who | ns a number (median of {ROUNDS}) | ratio to attentiond |\n"
          "|---|---|---|---|")
    for question in peer:
        for (asked, who), value in median.items():
            if asked == question:
                print(f"| {question} | {who} | {value:.1f} | "
                      f"{value / median[question, 'attentiond']:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1])
