#!/usr/bin/python3
"""Ablations of random problems through the running service, against the reference.

usage: run_ablations.py BINARY [--count N] [--seed S]
Start reading at judge().
"""
import sys

import numpy as np

from client import Service, Tally, arrays, seeded
from problems import Generator
from reference import answers, shaped
from reference_ablate import CLAIMS, ablated
from tensors import first_difference

RTOL = {"float64": 1e-12, "float32": 3e-5}           # as in run_random.py
DELTA_RTOL = {"float64": 1e-12, "float32": 1e-4}     # a difference of two such numbers


def edits_of(make, p, body):
    """One edit of every kind that this problem has, in random order."""
    draw, out = make.draw, []
    for name in CLAIMS:
        if name not in p.params:
            continue
        shape = p.params[name].T.shape if p.linear else p.params[name].shape
        change = draw.choice(["zero", "negate", "scale", "replace"])
        edit = {"target": name, "change": change}
        if change == "scale":
            edit["by"] = round(draw.uniform(0.2, 2), 2)
        if change == "replace":
            edit["with"] = make.numbers(*shape, spread=0.5).tolist()
        out.append(edit)
    by = round(draw.uniform(0.3, 2), 2)
    out.append({"target": "scale", "change": "scale", "by": by})
    out.append({"target": "edge", "change": "remove", "query": draw.randrange(p.T_q),
                "key": draw.randrange(p.T_kv)})
    out.append({"target": "head", "change": "zero", "index": draw.randrange(p.h)})
    out += [{"target": "masks." + rule, "change": "remove"}
            for rule in body.get("masks", {})]
    draw.shuffle(out)
    return out[:4]


def judge(answer, body, p, t, want):
    """Sentences: how the answered ablations differ from the reference."""
    wrong = []
    got = answer.get("ablations", [])
    if len(got) != len(body["ablations"]):
        return ["%d ablations, want %d" % (len(got), len(body["ablations"]))]
    for edit, entry in zip(body["ablations"], got):
        what = "%s %s: " % (edit["target"], edit["change"])
        changed = ablated(body, edit)
        found = tensors_wrong(entry, p, changed, want) + \
            deltas_wrong(entry, p, t, changed) + claims_wrong(entry, edit, p)
        wrong += [what + line for line in found]
    return wrong


def tensors_wrong(entry, p, changed, want):
    got, wrong = arrays(entry["tensors"]), []
    for name in want:
        if name not in got:
            wrong.append("%s absent" % name)
            continue
        value = shaped(p, name, changed[name])
        said = first_difference(got[name], value, RTOL[p.dtype], 0, floor=True)
        if said:
            wrong.append(name + said)
    return wrong


def deltas_wrong(entry, p, t, changed):
    wrong = []
    for name, got in entry["max_abs_delta"].items():
        if t[name].dtype == bool or not isinstance(got, (int, float)):
            continue
        with np.errstate(invalid="ignore"):
            gap = np.abs(changed[name] - t[name])
        if not np.all(np.isfinite(gap)):
            continue
        most = float(np.max(gap))
        if abs(got - most) > DELTA_RTOL[p.dtype] * max(1, most):
            wrong.append("max_abs_delta.%s: got %r, want %r" % (name, got, most))
        if (got != 0) != (name in entry["changed"]):
            wrong.append("%s moved by %r, listed as %s" % (name, got, entry["changed"]))
    return wrong


def claims_wrong(entry, edit, p):
    claimed = {c["object"] for c in entry["claims"]}
    held = set(entry["changed"] + entry["unchanged"])
    want = CLAIMS.get(edit["target"], set()) & held
    wrong = ["claim about %s absent" % name for name in sorted(want - claimed)]
    if edit["target"] == "W_O" and edit["change"] == "zero" and "Y" not in claimed:
        wrong.append("claim about Y absent")
    for claim in entry["claims"]:
        exactly_zero = claim["object"] == "Y" and "b_O" in p.params
        if claim["holds"] is not True and not exactly_zero:
            wrong.append("claim does not hold: %s" % claim)
    return wrong


def main():
    args = seeded(150)
    tally = Tally()
    with Service(args.binary) as service:
        for seed in args.seeds:
            make = Generator(seed, 2, forms=("nested",))
            body = make.problem()
            for name in ("gradients", "traces", "path"):
                body.pop(name, None)
            if body.get("empty_rows") in ("nan", "error"):
                body["empty_rows"] = "zero"
            want, p, t = answers(body)
            body["ablations"] = edits_of(make, p, body)
            status, answer = service.ask(body)
            wrong = judge(answer, body, p, t, want) if status == 200 else \
                ["status %d: %s" % (status, answer.get("detail", answer))]
            tally.record("seed %d" % seed, wrong)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
