"""How long orjson takes to write and read the numbers of bench_numbers.c, as rows of its table.

usage: numbers_orjson.py (in an environment with numpy and orjson)
Not here: our own figures (bench_numbers.c), which run in turns with this one.
"""
import statistics
import time

import numpy as np
import orjson

NUMBERS, ROUNDS = 200000, 7


def numbers():
    state, out = 1, []
    for _ in range(NUMBERS):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        out.append(((state >> 11) * 2.0 ** -53 - 0.5) * 6)
    return np.array(out)


def measure(function, argument):
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        function(argument)
        times.append(time.perf_counter() - begin)
    return 1e9 * statistics.median(times) / NUMBERS


def write(x):
    return orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY)


def main():
    wide = numbers()
    for name, x in (("float32", wide.astype(np.float32)), ("float64", wide)):
        print("| write a %s | orjson %s | %.1f | |" % (name, orjson.__version__,
                                                      measure(write, x)))
        print("| read a %s | orjson %s | %.1f | |" % (name, orjson.__version__,
                                                     measure(orjson.loads, write(x))))


if __name__ == "__main__":
    main()
