#!/usr/bin/python3
"""Numbers through the service and back: the same bits, in the shortest decimal.

usage: run_numbers.py BINARY [--count N] [--seed S]
V of a projected request goes through unchanged: what returns is what was sent.
Start reading at judge().
"""
import json
import random
import struct
import sys

import numpy as np

from client import Service, Tally, seeded

SPECIAL = {"float64": [0.0, -0.0, 0.1, 1 / 3, 5e-324, 2.2250738585072014e-308,
                       1.7976931348623157e308, 9007199254740993.0, 1e21, 1e22, 1e23, 1e-5,
                       1e-7, 123456789012345680.0, 5e-5, 299792458.0, 2.0 ** 70],
           "float32": [0.0, -0.0, 0.1, 1.4e-45, 1.1754944e-38, 3.4028235e38, 16777217.0,
                       8388608.5, 1e10, 3.3e-7, 2.0 ** 40]}
FORMATS = {"float64": ("<d", 8), "float32": ("<f", 4)}


def random_numbers(draw, dtype, count):
    """Finite numbers of random bits, and short decimals."""
    code, size = FORMATS[dtype]
    out = list(SPECIAL[dtype])
    while len(out) < count:
        x = struct.unpack(code, draw.randbytes(size))[0]
        if np.isfinite(x):
            out.append(x)
        out.append(round(draw.uniform(-1000, 1000), draw.randrange(6)))
    return out[:count]


def shortest(x, dtype):
    """Characters of the shortest decimal that reads back to x, as Python writes it."""
    return len(repr(float(x)) if dtype == "float64" else str(np.float32(x)))


def judge(service, dtype, numbers):
    body = {"dtype": dtype, "return": ["V"], "audit": "off", "inputs":
            {"Q": [[1]], "K": [[1]] * len(numbers), "V": [[x] for x in numbers]}}
    _, _, data = service.send("POST", "/v1/attention", json.dumps(body).encode(),
                              {"Content-Type": "application/json"})
    answer = json.loads(data, parse_float=str, parse_int=str)
    if "tensors" not in answer:
        return ["%s" % answer.get("detail")]
    wrong, kind = [], np.dtype(dtype).type
    for x, (token,) in zip(numbers, answer["tensors"]["V"]):
        if kind(token).tobytes() != kind(x).tobytes():
            wrong.append("%r came back as %s" % (x, token))
        elif len(token) > shortest(x, dtype):
            wrong.append("%r came back longer than needed: %s" % (x, token))
    return wrong


def main():
    args = seeded(40)
    tally = Tally()
    with Service(args.binary) as service:
        for seed in args.seeds:
            dtype = ("float64", "float32")[seed % 2]
            numbers = random_numbers(random.Random(seed), dtype, 300)
            tally.record("seed %d %s" % (seed, dtype), judge(service, dtype, numbers))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
