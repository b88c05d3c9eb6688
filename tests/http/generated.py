"""Generated tensors ({"init":…,"seed":…}): the documented algorithm, written again.

Element n of seed s: x = SplitMix64 number n of the stream from s;
u = (floor(x / 2^12) + 1/2) / 2^52; uniform: a (2u - 1); normal: std times the normal
quantile of u.
Not here: what is computed from them.  Start reading at numbers() and expand().
"""
import copy
import math
from statistics import NormalDist

import numpy as np

from tensors import plain

WORD = 2 ** 64 - 1
GAMMA = 0x9E3779B97F4A7C15


def splitmix(seed, n):
    """Number n (from 0) of the stream from the seed (Steele, Lea, Flood 2014)."""
    z = (seed + (n + 1) * GAMMA) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def open_unit(seed, n):
    return ((splitmix(seed, n) >> 12) + 0.5) / 2.0 ** 52


def numbers(spec, shape):
    """float64 array of one generated tensor."""
    kind, seed, std = spec["init"], spec.get("seed", 0), spec.get("std")
    count = int(np.prod(shape))
    if kind in ("zeros", "ones"):
        return np.full(shape, float(kind == "ones"))
    if kind == "identity":
        return np.broadcast_to(np.eye(*shape[-2:]), shape).copy()
    if kind == "normal":
        normal = NormalDist(0, std or 1)
        return np.array([normal.inv_cdf(open_unit(seed, n))
                         for n in range(count)]).reshape(shape)
    a = math.sqrt(3) * std if std else \
        1 if kind == "uniform" else math.sqrt(6 / (shape[-2] + shape[-1]))
    flat = [a * (2 * open_unit(seed, n) - 1) for n in range(count)]
    return np.array(flat).reshape(shape)


def expand(body):
    """The request with plain numbers for every generated tensor; needs all sizes."""
    body = copy.deepcopy(body)
    s = body.get("shapes", {})
    h = s.get("heads", 1)
    g = s.get("kv_heads", h)
    batch = [s["B"]] if "B" in s else []
    d, wq, wk, wv, wo = (s[k] * n for k, n in (("d_model", 1), ("d_k", h), ("d_k", g),
                                               ("d_v", g), ("d_v", h)))
    shapes = {"X": batch + [s["T"], d], "X_kv": batch + [s.get("T_kv", s["T"]), d],
              "W_Q": [d, wq], "W_K": [d, wk], "W_V": [d, wv], "W_O": [wo, d],
              "b_Q": [wq], "b_K": [wk], "b_V": [wv], "b_O": [d]}
    linear = body["weights"].get("convention") == "torch_linear"
    for fields in (body["inputs"], body["weights"]):
        for name, value in fields.items():
            if isinstance(value, dict) and "init" in value:
                shape = shapes[name][::-1] if linear and name[0] == "W" else shapes[name]
                fields[name] = plain(numbers(value, tuple(value.get("shape", shape))))
    return body
