#!/usr/bin/python3
"""Problems that reach over the edges of row blocks, dense and tiled, against long double.

usage: run_large.py BINARY [--count N] [--seed S]
The reference's loops are too slow here: forward_fast() is the same mathematics on whole
arrays, and is itself compared with the reference on small problems first.
"""
import sys

import numpy as np

from client import Service, Tally, arrays, seeded
from problems import Generator
from reference import forward, mask, project, rotate, shaped
from reference_read import read_problem
from tensors import LD, first_difference

EDGES = [127, 128, 129, 160, 200, 255, 256, 257, 300]
# Sums of up to 300 terms: twice what run_random.py allows.
RTOL = {"float64": 2e-12, "float32": 6e-5}


class LargeGenerator(Generator):
    """Few features, many positions; documents and windows that span blocks."""

    def sizes(self):
        super().sizes()
        self.B = min(self.B, 2)
        if self.h > 4:
            self.h = self.g = 2
        same = self.T_q == self.T_new
        self.T_q = self.draw.choice(EDGES)
        self.T_new = self.T_q if same else self.draw.choice(EDGES + [1, 5])
        self.T_past = self.draw.choice([1, 64, 130]) if self.T_past else 0
        self.T_kv = self.T_past + self.T_new

    def documents(self):
        rows = []
        for _ in range(self.B):
            left, lengths = self.T_kv, []
            while left:
                lengths.append(min(left, self.draw.choice([1, 7, 64, 100, 128, 150])))
                left -= lengths[-1]
            rows.append(lengths)
        return {"lengths": rows if self.batched else rows[0]}

    def masks(self):
        out = super().masks()
        if "window" in out:
            out["window"] = {side: self.draw.choice([-1, 0, 3, 64, 127, 128, 140])
                             for side in ("left", "right")}
        return out


def per_query_head(p, x):
    return np.repeat(x, p.h // p.g, axis=1)


def forward_fast(p):
    """H, lse, A and Y on whole arrays; the same steps as reference.forward."""
    P = p.params
    q, k, v = (P["Q"], P["K"], P["V"]) if p.projected else projections(p)
    if p.rope is not None:
        q, k = rotate(q, p.rope_q, p), rotate(k, p.rope_k, p)
    if p.T_past:
        k = np.concatenate([P["past_K"], k], axis=2)
        v = np.concatenate([P["past_V"], v], axis=2)
    k, v = per_query_head(p, k), per_query_head(p, v)
    if p.function == "dot_product":
        S = np.einsum("bhic,bhjc->bhij", q, k)
    else:
        S = np.sum(np.tanh(q[:, :, :, None] + k[:, :, None]) * P["v_a"], axis=-1)
    S = S * p.scale / p.temperature
    if p.softcap:
        S = p.softcap * np.tanh(S / p.softcap)
    logits = S + mask_fast(p)
    sink = P["sink"][None, :, None] if "sink" in P else np.full((1, p.h, 1), -LD(np.inf))
    top = np.maximum(np.max(logits, axis=3), sink)
    empty = ~np.any(p.allowed, axis=3)
    top = np.where(np.isfinite(top), top, 0)
    e = np.where(p.allowed, np.exp(logits - top[..., None]), 0)
    total = np.sum(e, axis=3) + np.exp(sink - top)
    A = e / np.where(empty, 1, total)[..., None]
    A[empty] = {"zero": 0, "nan": np.nan, "uniform": LD(1) / p.T_kv}.get(p.empty_rows, 0)
    with np.errstate(divide="ignore"):
        lse = np.where(empty, -LD(np.inf), top + np.log(total))
    heads = np.einsum("bhij,bhjc->bhic", A, v)
    H = np.concatenate([heads[:, h] for h in range(p.h)], axis=2)
    out = {"A": A, "lse": lse, "H": H}
    if "W_O" in P:
        out["Y"] = H @ P["W_O"] + P.get("b_O", 0)
    return out


def projections(p):
    P = p.params
    source = P.get("X_kv", P["X"])
    return (project(P["X"], P["W_Q"], P.get("b_Q"), p.h),
            project(source, P["W_K"], P.get("b_K"), p.g),
            project(source, P["W_V"], P.get("b_V"), p.g))


def mask_fast(p):
    """reference.mask, with ALiBi on whole arrays."""
    slopes, p.slopes = p.slopes, None
    M = mask(p)
    p.slopes = slopes
    if slopes is not None:
        here = np.arange(p.T_q)[:, None] + p.offset
        away = np.abs(here - np.arange(p.T_kv)[None]).astype(LD)
        M = M - slopes[None, :, None, None] * away
    return M


def judge(service, make):
    """Dense without weights, tiled, dense with weights: three ways to the same rows."""
    body = make.problem()
    for name in ("gradients", "traces", "path", "encoding"):
        body.pop(name, None)
    p = read_problem(body)
    t = forward_fast(p)
    rows = [n for n in ("H", "lse", "Y") if n in t]
    wrong = []
    for path, names, audit in (("dense", rows, "sampled"), ("tiled", rows, "sampled"),
                               ("dense", rows + ["A"], "full")):
        request = dict(body, path=path, encoding="base64", audit=audit)
        request["return"] = names
        status, answer = service.ask(request)
        if status != 200:
            return wrong + ["%s: status %d: %s" % (path, status, answer.get("detail"))]
        got = arrays(answer["tensors"])
        for name in names:
            said = first_difference(got[name], shaped(p, name, t[name]), RTOL[p.dtype], 0,
                                    floor=True)
            if said:
                wrong.append("%s: %s%s" % (path, name, said))
        if np.all(np.isfinite(t["H"])) and answer["audit"]["status"] != "pass":
            checks = answer["audit"]["checks"]
            bad = [c for c in checks if c["status"] in ("fail", "warn")]
            wrong.append("%s: audit %s" % (path, bad[:1]))
        pairs = int(np.sum(p.allowed))
        if answer["cost"]["pairs"]["allowed_total"] != pairs:
            wrong.append("allowed_total %s, want %d" % (answer["cost"]["pairs"], pairs))
    return wrong


def prove_fast(seed, tally):
    p = read_problem(Generator(seed, 2).problem())
    slow, fast = forward(p), forward_fast(p)
    said = [(n, first_difference(x, slow[n], 1e-16, 0, floor=True))
            for n, x in fast.items()]
    tally.record("fast %d" % seed, [n + what for n, what in said if what])


def main():
    args = seeded(16)
    tally = Tally()
    for seed in range(args.seed, args.seed + 40):
        prove_fast(seed, tally)
    with Service(args.binary) as service:
        for seed in args.seeds:
            tally.record("seed %d" % seed, judge(service, LargeGenerator(seed, 2)))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
