#!/usr/bin/python3
"""Decoding with a cache: the same tokens at once, in random chunks and one by one.

usage: run_cache.py BINARY [--count N] [--seed S]
Rows of Y and the cache itself must agree within rounding, over heads, positions, windows,
sinks and both precisions.  Start reading at judge().
"""
import random
import sys

import numpy as np

from client import Service, Tally, seeded

TOLERANCE = {"float64": 1e-12, "float32": 3e-5}     # relative to max(1, |x|)


def layer(draw):
    """A problem without its tokens, and its sizes."""
    kv_heads = draw.randint(1, 2)
    heads = kv_heads * draw.randint(1, 2)
    sizes = {"B": draw.randint(1, 2), "T": draw.randint(4, 9), "d_model": 5, "d_k": 4, "d_v": 3}
    body = {"dtype": draw.choice(list(TOLERANCE)), "shapes": {"heads": heads, "kv_heads": kv_heads},
            "masks": {"causal": {"alignment": draw.choice(["top_left", "bottom_right"])}},
            "return": ["Y", "present_K", "present_V"], "audit": draw.choice(["sampled", "full"])}
    if draw.random() < 0.4:
        body["masks"]["window"] = {"left": draw.randint(1, 3), "right": 0}
    if draw.random() < 0.4:
        body["sink"] = [round(draw.gauss(0, 1), 3) for _ in range(heads)]
    position = {}
    if draw.random() < 0.6:
        position["rope"] = {"layout": draw.choice(["half", "interleaved"]), "base": 100}
    if draw.random() < 0.3:
        position["alibi"] = {"slopes": "standard"}
    if position:
        body["position"] = position
    shapes = {"W_Q": (5, heads * 4), "W_K": (5, kv_heads * 4), "W_V": (5, kv_heads * 3),
              "W_O": (heads * 3, 5), "b_K": (kv_heads * 4,)}
    random_numbers = np.random.RandomState(draw.randrange(2 ** 31))
    body["weights"] = {name: random_numbers.randn(*shape).round(4).tolist()
                       for name, shape in shapes.items()}
    tokens = random_numbers.randn(sizes["B"], sizes["T"], sizes["d_model"]).round(4)
    return body, tokens


def decode(service, body, tokens, bounds):
    """Y of all tokens, and the cache at the end, when the tokens come in chunks."""
    past, rows = None, []
    for begin, end in zip(bounds, bounds[1:]):
        inputs = {"X": tokens[:, begin:end].tolist()}
        if past:
            inputs["past"] = past
        status, answer = service.ask({**body, "inputs": inputs})
        if status != 200:
            raise AssertionError("tokens %d to %d: %s" % (begin, end, answer.get("detail")))
        if answer["audit"]["status"] != "pass":
            raise AssertionError("tokens %d to %d: the audit says %s at %s" % (
                begin, end, answer["audit"]["status"], answer["audit"]["first_incorrect"]))
        tensors = answer["tensors"]
        rows.append(np.array(tensors["Y"]))
        past = {"K": tensors["present_K"], "V": tensors["present_V"]}
    return {"Y": np.concatenate(rows, axis=1), "present_K": np.array(past["K"]),
            "present_V": np.array(past["V"])}


def splits(draw, T):
    inner = sorted(draw.sample(range(1, T), draw.randint(1, T - 2)))
    return {"in chunks %s" % inner: [0, *inner, T], "one by one": list(range(T + 1))}


def judge(service, draw):
    body, tokens = layer(draw)
    T = tokens.shape[1]
    whole = decode(service, body, tokens, [0, T])
    wrong = []
    for name, bounds in splits(draw, T).items():
        for tensor, got in decode(service, body, tokens, bounds).items():
            want = whole[tensor]
            error = np.abs(got - want) / np.maximum(1, np.abs(want))
            if got.shape != want.shape or not error.max() <= TOLERANCE[body["dtype"]]:
                at = np.unravel_index(error.argmax(), error.shape)
                wrong.append("%s, %s %s: %r, at once %r" % (
                    name, tensor, [int(n) for n in at], float(got[at]), float(want[at])))
    return wrong


def main():
    args = seeded(100)
    tally = Tally()
    with Service(args.binary) as service:
        for seed in args.seeds:
            try:
                wrong = judge(service, random.Random(seed))
            except AssertionError as error:
                wrong = [str(error)]
            tally.record("seed %d" % seed, wrong)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
