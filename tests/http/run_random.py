#!/usr/bin/python3
"""Random problems through the running service, against the reference in long double.

usage: run_random.py BINARY [--count N] [--seed S] [--level 1|2]
Problem n of seed S is Generator(S + n, level): --count 1 --seed S+n repeats one alone.
Start reading at judge().
"""
import argparse
import json
import sys

import numpy as np

from client import Service, Tally, arrays
from problems import Generator
from reference import answers, pairs, supervision, trace
from reference_grad import gradients
from tensors import first_difference, read

# Relative to max(1, |x|).  Sums of at most a hundred terms of size about 1, then exp of
# scores of size about 10: 1e3 units in the last place of each dtype.
RTOL = {"float64": 1e-12, "float32": 3e-5}
CHECKS = ["shapes_input_and_projections", "qkv_rows", "score_shape_and_scale",
          "mask_entries", "softmax_rows", "forbidden_zeros", "weighted_values",
          "output_projection", "batch_independence", "prefix_invariance",
          "document_isolation", "masked_value_poison", "tiled_agreement", "gradients"]
GRADIENT_RTOL = 1e-10    # float64: products of four such sums


def judge(service, body):
    """Sentences: how the answer differs from what the reference says."""
    want, p, t = answers(body)
    status, answer = service.ask(body)
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail", answer))]
    got = arrays(answer["tensors"])
    wrong = []
    if set(got) != set(want):
        wrong.append("tensors %s, want %s" % (sorted(got), sorted(want)))
    for name in [n for n in want if n in got]:
        said = first_difference(got[name], want[name], RTOL[p.dtype], 0, floor=True)
        if said:
            wrong.append("%s%s" % (name, said))
        if answer["shapes"].get(name) != list(want[name].shape):
            wrong.append("shapes.%s: %s, want %s" % (name, answer["shapes"].get(name),
                                                     list(want[name].shape)))
    wrong += audit_wrong(answer, t) + cost_wrong(answer, p) + rows_wrong(answer, p)
    wrong += traces_wrong(answer, body, p, t)
    if p.gradients:
        wrong += gradients_wrong(answer, p, t)
    return wrong


def audit_wrong(answer, t):
    """All checks are listed in order; those of finite tensors pass or do not apply."""
    audit = answer["audit"]
    if [c["id"] for c in audit["checks"]] != CHECKS:
        return ["audit.checks: %s" % [c["id"] for c in audit["checks"]]]
    if not all(np.all(np.isfinite(t[n])) for n in ("Q", "K", "V", "S")):
        return []
    if audit["status"] == "pass" and audit["first_incorrect"] is None:
        return []
    bad = [c for c in audit["checks"] if c["status"] not in ("pass", "not_applicable")]
    said = (audit["status"], audit["first_incorrect"], json.dumps(bad[:1]))
    return ["audit %s, first_incorrect %s: %s" % said]


def cost_wrong(answer, p):
    got = answer["cost"]["pairs"]
    return ["cost.pairs.%s: got %r, want %r" % (key, got.get(key), value)
            for key, value in pairs(p).items()
            if got.get(key) is None or abs(got[key] - value) > 1e-12 * max(1, value)]


def rows_wrong(answer, p):
    """rows.empty: query rows without a key; supervision: labels of the same document."""
    want = empty_places(p)
    wrong = [] if answer["rows"]["empty"] == want else \
        ["rows.empty: got %s, want %s" % (answer["rows"]["empty"][:3], want[:3])]
    labels = None if p.ids is None else supervision(p).tolist()
    if labels and not p.batched:
        labels = labels[0]
    if answer.get("supervision") != labels:
        wrong.append("supervision: got %s, want %s" % (answer.get("supervision"), labels))
    return wrong


def empty_places(p):
    """{batch, head, query} of every empty row, as far as the request has these axes."""
    out = []
    for b, h, i in np.argwhere(~np.any(p.allowed, axis=3)).tolist():
        place = {"batch": b} if p.batched else {}
        if p.headed:
            place["head"] = h
        out.append(dict(place, query=i))
    return out


def traces_wrong(answer, body, p, t):
    """Each asked row, key by key."""
    asked, got, wrong = body.get("traces", []), answer.get("traces", []), []
    if len(asked) != len(got):
        return ["%d traces, want %d" % (len(got), len(asked))]
    for n, at in enumerate(asked):
        want = trace(p, t, at["batch"], at["head"], at["query"])
        pairs_of = [(want, got[n])] + list(zip(want["keys"], got[n]["keys"]))
        if len(want["keys"]) != len(got[n]["keys"]):
            wrong.append("traces[%d]: %d keys, want %d" % (n, len(got[n]["keys"]),
                                                           len(want["keys"])))
        for expected, seen in pairs_of:
            for name in set(expected) - {"keys"}:
                said = first_difference(read(seen[name]), np.asarray(expected[name]),
                                        RTOL[p.dtype], 0, floor=True)
                if said:
                    wrong.append("traces[%d].%s %s" % (n, name, said))
    return wrong


def gradients_wrong(answer, p, t):
    got, wrong = arrays(answer["gradients"]), []
    asked = p.gradients.get("with_respect_to")
    if asked and set(got) != set(asked):
        wrong.append("gradients %s, want %s" % (sorted(got), sorted(asked)))
    for name, value in gradients(p, t).items():
        if asked and name not in asked:
            continue
        if name not in got:
            wrong.append("gradients.%s absent" % name)
        elif p.dtype == "float64":
            said = first_difference(got[name], value, GRADIENT_RTOL, 0, floor=True)
            if said:
                wrong.append("gradients.%s%s" % (name, said))
        elif got[name].shape != value.shape:
            wrong.append("gradients.%s shape %s" % (name, got[name].shape))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--save", help="file for the first request that fails")
    args = parser.parse_args()
    print("seed %d, level %d" % (args.seed, args.level))
    tally = Tally()
    with Service(args.binary) as service:
        for n in range(args.count):
            body = Generator(args.seed + n, args.level).problem()
            body["audit"] = ("sampled", "full")[n % 2]
            wrong = judge(service, body)
            tally.record("seed %d" % (args.seed + n), wrong)
            if wrong and args.save:
                with open(args.save, "w", encoding="utf-8") as file:
                    json.dump(body, file)
                args.save = None
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
