#!/usr/bin/python3
"""Requests with generated tensors through the running service, against the reference.

usage: run_generated.py BINARY [--count N] [--seed S]
Start reading at request().
"""
import random
import sys

from client import Service, Tally, arrays, seeded
from generated import expand
from reference import answers
from run_random import RTOL
from tensors import first_difference

KINDS = ["normal", "normal", "uniform", "xavier_uniform", "identity", "ones", "zeros"]


def spec(draw, shape, matrix):
    out = {"init": draw.choice(KINDS if matrix else ["normal", "uniform", "ones"])}
    if out["init"] not in ("identity", "ones", "zeros"):
        out["seed"] = draw.choice([draw.randrange(100), draw.randrange(2 ** 53)])
        if draw.random() < 0.5:
            out["std"] = round(draw.uniform(0.1, 0.8), 3)
    if draw.random() < 0.2:
        out["shape"] = shape
    return out


def request(seed):
    """All sizes in `shapes`, all tensors generated, some with their shape stated."""
    draw = random.Random(seed)
    T, T_kv, d, d_k, d_v = draw.sample(range(2, 9), 5)
    h, g = draw.choice([(1, 1), (2, 1), (4, 2), (3, 3)])
    shapes = {"T": T, "d_model": d, "d_k": d_k, "d_v": d_v, "heads": h, "kv_heads": g}
    batch = []
    if draw.random() < 0.5:
        shapes["B"] = draw.randint(1, 3)
        batch = [shapes["B"]]
    body = {"shapes": shapes, "inputs": {"X": spec(draw, batch + [T, d], True)},
            "weights": {}, "return": ["Q", "K", "V", "A", "Y"],
            "dtype": draw.choice(["float64", "float64", "float32"])}
    if draw.random() < 0.4:
        shapes["T_kv"] = T_kv
        body["inputs"]["X_kv"] = spec(draw, batch + [T_kv, d], True)
    linear = draw.random() < 0.3
    if linear:
        body["weights"]["convention"] = "torch_linear"
    for name, rows, columns in (("Q", d, h * d_k), ("K", d, g * d_k), ("V", d, g * d_v),
                                ("O", h * d_v, d)):
        shape = [columns, rows] if linear else [rows, columns]
        body["weights"]["W_" + name] = spec(draw, shape, True)
        if draw.random() < 0.3:
            body["weights"]["b_" + name] = spec(draw, [columns], False)
    return body


def judge(service, body):
    want, p, _ = answers(expand(body))
    status, answer = service.ask(body)
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail", answer))]
    got = arrays(answer["tensors"])
    said = [(n, first_difference(got[n], want[n], RTOL[p.dtype], 0, floor=True))
            for n in want]
    return [n + what for n, what in said if what]


def main():
    args = seeded(150)
    tally = Tally()
    with Service(args.binary) as service:
        for seed in args.seeds:
            tally.record("seed %d" % seed, judge(service, request(seed)))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
