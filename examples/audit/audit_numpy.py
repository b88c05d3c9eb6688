#!/usr/bin/python3
"""Audits an attention layer written in NumPy: probe, run, audit, report.

usage: audit_numpy.py [--url URL] [--seed N] [--purpose NAME]... [--break NAME] [--list]
Replace layer() by your own implementation; everything else may stay.  --break makes it
wrong on purpose, to see the fault found.  Start reading at main().
"""
import argparse
import sys

import numpy as np

from report import ask, exit_code, show


def scores_unscaled(step):
    step["scale"] = 1.0


def heads_joined_by_view(step):
    step["join"] = lambda H: H.reshape(H.shape[0], H.shape[2], -1)


def heads_tiled(step):
    step["kv_of"] = lambda h, g: np.arange(h) % g


def mask_after_softmax(step):
    step["mask_late"] = True


def future_leaks(step):
    step["leak"] = 1


def weights_over_queries(step):
    step["axis"] = -2


BREAKS = {f.__name__: f for f in (scores_unscaled, heads_joined_by_view, heads_tiled,
                                  mask_after_softmax, future_leaks, weights_over_queries)}


def split(x, heads):
    """(B,T,h*d) to (B,h,T,d): head i owns columns i*d ... (i+1)*d-1."""
    B, T, width = x.shape
    return x.reshape(B, T, heads, width // heads).transpose(0, 2, 1, 3)


def rotate(x, positions, rope):
    """RoPE of x (B,h,T,d) at positions (B,T)."""
    half = x.shape[-1] // 2
    angle = positions[:, None, :, None] * rope["base"] ** (-2 * np.arange(half)
                                                           / x.shape[-1])
    cos, sin, out = np.cos(angle), np.sin(angle), np.empty_like(x)
    a, b = ((slice(0, half), slice(half, None)) if rope["layout"] == "half"
            else (slice(0, None, 2), slice(1, None, 2)))
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out


def join(x):
    """(B,h,T,d) to (B,T,h*d)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def allowed_pairs(problem, B, h, T_q, T_kv, past, leak):
    """(B,h,T_q,T_kv): True where a query may read a key."""
    masks = problem.get("masks", {})
    i, j = np.arange(T_q)[:, None], np.arange(T_kv)[None, :]
    top_left = masks.get("causal", {}).get("alignment") == "top_left"
    here = i + (past if top_left else T_kv - T_q)
    ok = np.ones((B, h, T_q, T_kv), bool)
    if "causal" in masks:
        ok &= j <= here + leak
    if "window" in masks:
        left, right = (masks["window"].get(side, -1) for side in ("left", "right"))
        ok &= (left < 0) | (j >= here - left)
        ok &= (right < 0) | (j <= here + right)
    if "padding" in masks:
        ok &= np.array(masks["padding"]["valid"])[:, None, None, :]
    if "documents" in masks:
        ids = np.array(masks["documents"]["ids"])
        ok &= (ids[:, T_kv - T_q:, None] == ids[:, None, :])[:, None]
    if "allowed" in masks:
        ok &= np.array(masks["allowed"])
    return ok, np.abs(here - j)


def layer(problem, change=lambda step: None):
    """Q K V S A H Y and allowed of a probe's problem: this is the part to replace."""
    w = {name: np.array(value) for name, value in problem["weights"].items()}
    h, g = problem["shapes"]["heads"], problem["shapes"]["kv_heads"]
    X = np.array(problem["inputs"]["X"])
    X_kv = np.array(problem["inputs"].get("X_kv", X))
    d_k = w["W_Q"].shape[1] // h
    step = {"scale": problem["score"].get("scale", 1 / np.sqrt(d_k)),
            "axis": -1, "mask_late": False, "leak": 0, "join": join,
            "kv_of": lambda heads, groups: np.arange(heads) // (heads // groups)}
    change(step)
    past = problem["inputs"].get("past")
    T_past = len(past["K"][0][0]) if past else 0
    T_q, T_kv = X.shape[1], X_kv.shape[1] + T_past
    allowed, distance = allowed_pairs(problem, len(X), h, T_q, T_kv, T_past,
                                      step["leak"])

    def project(x, name, heads):
        return split(x @ w["W_" + name] + w.get("b_" + name, 0), heads)

    Q = project(X, "Q", h)
    K, V = project(X_kv, "K", g), project(X_kv, "V", g)
    position = problem.get("position", {})
    if "rope" in position:
        rope = position["rope"]
        at_q = rope.get("q", [np.arange(T_kv - T_q, T_kv)] * len(X))
        at_k = rope.get("k", [np.arange(T_past, T_kv)] * len(X))
        Q, K = rotate(Q, np.array(at_q), rope), rotate(K, np.array(at_k), rope)
    if past:
        K = np.concatenate([np.array(past["K"]), K], axis=2)
        V = np.concatenate([np.array(past["V"]), V], axis=2)

    group = step["kv_of"](h, g)
    S = Q @ K[:, group].transpose(0, 1, 3, 2) * step["scale"]
    S = S / problem["score"].get("temperature", 1)
    cap = problem["score"].get("softcap")
    if cap:
        S = cap * np.tanh(S / cap)
    M = np.zeros_like(S)
    if "alibi" in position:
        M -= np.array(position["alibi"]["slopes"])[:, None, None] * distance
    if "additive" in problem.get("masks", {}):
        M += np.array(problem["masks"]["additive"], float)[:, None]    # reads "-Infinity"
    A = weights(S, np.where(allowed, M, -np.inf), problem.get("sink"), step)
    H = A @ V[:, group]
    H = step["join"](H)
    Y = H @ w["W_O"] + w.get("b_O", 0)
    return {"Q": Q, "K": K, "V": V, "S": S, "allowed": allowed & np.isfinite(M), "A": A,
            "H": H, "Y": Y}


def weights(S, M, sink, step):
    """Softmax of S + M with an optional sink in the denominator; empty rows are zeros."""
    logits = S if step["mask_late"] else S + M
    top = np.max(logits, axis=step["axis"], keepdims=True)
    if sink is not None:
        top = np.maximum(top, np.array(sink)[:, None, None])
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(logits - top)
    total = np.sum(e, axis=step["axis"], keepdims=True)
    if sink is not None:
        total = total + np.exp(np.array(sink)[:, None, None] - top)
    A = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return A * np.isfinite(M) if step["mask_late"] else A


def plain(tensor):
    """Nested lists; what JSON lacks as words."""
    if tensor.dtype == bool or np.all(np.isfinite(tensor)):
        return tensor.tolist()
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [plain(part) for part in tensor] if tensor.ndim else \
        words.get(str(float(tensor)), float(tensor))


def candidate(problem, change):
    with np.errstate(all="ignore"):
        return {name: plain(x) for name, x in layer(problem, change).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--purpose", action="append")
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    parser.add_argument("--list", action="store_true", help="the names of --break")
    args = parser.parse_args()
    if args.list:
        print("\n".join(sorted(BREAKS)))
        return 0
    change = BREAKS.get(args.broken, lambda step: None)
    wanted = {"seed": args.seed}
    if args.purpose:
        wanted["purpose"] = args.purpose
    probe = ask(args.url, "/v1/probe", wanted)
    body = dict(probe["problem"], candidate=candidate(probe["problem"], change))
    body["companions"] = [
        {"name": c["name"], "of": c["of"] or "main", "problem": c["problem"],
         "candidate": candidate(c["problem"], change)} for c in probe["companions"]]
    answer = ask(args.url, "/v1/audit", body)
    show(answer, "this NumPy layer" + (", broken on purpose" if args.broken else ""))
    return exit_code(answer)


if __name__ == "__main__":
    sys.exit(main())
