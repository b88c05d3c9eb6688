#!/usr/bin/python3
"""How often /v1/audit finds the first wrong object and its cause, and false alarms on right tensors.

usage: bench_audit.py BINARY [--count N] [--right N] [--seed S] > bench/AUDIT.md
Every fault of the catalog is injected into problems of random sizes and rules and into probes, at
most N problems a fault.  What comes out is rounded to four precisions and sent back with all
objects, with A and Y, and with Y alone.  Start reading at main(), then trial().
"""
import argparse
import collections
import json
import os
import random
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/http"))
from client import Service  # noqa: E402
from problems import Generator  # noqa: E402
from tensors import plain, read  # noqa: E402

ORDER = ["Q", "K", "V", "S", "M", "A", "H", "Y", "dH", "dV", "dA", "dS", "dQ", "dK", "dW_O", "dW_Q",
         "dW_K", "dW_V", "dX", "dX_kv", "db_Q", "db_K", "db_V", "db_O", "d_additive", "dsink",
         "dv_a"]
SCOPES = {"all objects": None, "A and Y": {"A", "Y"}, "Y alone": {"Y"}}
PRECISIONS = ["float64", "float32", "float16", "bfloat16"]
CLEAR = 10               # a fault counts where it moves a number by so many tolerances


def rounded(x, precision):
    """x as numbers of this precision, in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        if precision == "bfloat16":
            bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
            nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            out = nearest.astype(np.uint32).view(np.float32).astype(np.float64)
            return np.where(np.isfinite(x), out, x)
        return x.astype(precision).astype(np.float64)


def random_problem(seed):
    """Explicit numbers, any rules; gradients of Y where there is a Y and no empty row is NaN."""
    body = Generator(seed, 2, forms=("nested",)).problem()
    for name in ("traces", "path", "gradients", "return", "encoding"):
        body.pop(name, None)
    if body.get("empty_rows") in ("error", "nan"):
        body["empty_rows"] = "zero"
    body["dtype"] = "float64"
    if body.get("weights", {}).get("W_O") is not None:
        body["gradients"] = {"of": "Y"}
    return body


def probes(service, seed):
    """Problems of random sizes in which faults show, and the probe's own."""
    draw = random.Random(seed)
    h_kv = draw.choice([1, 2, 3])
    shapes = {"B": draw.choice([1, 2, 3]), "d_model": draw.randint(3, 9),
              "heads": h_kv * draw.choice([1, 2]), "kv_heads": h_kv, "d_v": draw.randint(2, 6)}
    out = []
    for ask in ({"seed": seed}, {"seed": seed, "shapes": shapes}):
        status, answer = service.ask(ask, "/v1/probe")
        if status == 200:
            varied = [c["problem"] for c in answer["companions"] if c["of"] is None]
            out += [answer["problem"]] + varied
    return out


def tensors_of(answer):
    named = dict(answer["tensors"])
    named.update({n: x for n, x in answer.get("gradients", {}).items() if n != "check"})
    return {n: read(x).astype(np.float64) for n, x in named.items() if n in ORDER}


class Tolerances:
    def __init__(self, catalog):
        self.of = {row["name"]: (row["rtol"], row["atol"]) for row in catalog["candidate_dtypes"]}

    def moved(self, x, right, precision):
        """Largest difference in tolerances; infinite where only one is finite."""
        rtol, atol = self.of[precision]
        both = np.isfinite(x) & np.isfinite(right)
        if np.any((x != right) & ~both & ~(np.isnan(x) & np.isnan(right))):
            return np.inf
        if not np.any(both):
            return 0.0
        x, right = x[both], right[both]
        return float(np.max(np.abs(x - right) / (atol + rtol * np.maximum(1, np.abs(right)))))


def judged(service, body, tensors, precision):
    problem = {k: v for k, v in body.items() if k not in ("audit",)}
    candidate = {n: plain(x) for n, x in tensors.items()}
    return service.ask(dict(problem, candidate=candidate, candidate_dtype=precision), "/v1/audit")


def first_clear(tensors, right, precision, tolerances):
    """The first given object that is clearly wrong; None where any is neither right nor clear."""
    for name in ORDER:
        if name not in tensors:
            continue
        moved = tolerances.moved(tensors[name], right[name], precision)
        if moved >= CLEAR:
            return name
        if moved > 0.5:
            return None
    return None


def trial(service, body, fault, faulty, right, scope, precision, tolerances):
    """None where the fault is not clear; otherwise (first right, cause best, cause named, silent)."""
    names = [n for n in faulty if SCOPES[scope] is None or n in SCOPES[scope]]
    if SCOPES[scope] is not None and not SCOPES[scope] <= set(names):
        return None
    given = {n: rounded(faulty[n], precision) for n in names}
    want = first_clear(given, right, precision, tolerances)
    if want is None or (fault["object"] in given and want != fault["object"]):
        return None
    status, said = judged(service, body, given, precision)
    if status != 200:
        raise SystemExit("%s: %s" % (fault["name"], said))
    if said["verdict"] == "correct" and said["accepted_forms"]:
        return None                        # here it is another right form
    groups = [[d["fault"]] + d["indistinguishable_from"] for d in said["diagnoses"]]
    named = [fault["name"] in group for group in groups]
    return (said["first_incorrect"] == want, bool(named and named[0]), any(named),
            not said["diagnoses"])


def measure(service, catalog, count, seed, tolerances):
    """{(scope, precision): Counter}, {fault: Counter} of everything given in float64."""
    cells, faults = collections.defaultdict(collections.Counter), {}
    pool = [random_problem(seed + n) for n in range(3 * count)]
    for n in range(max(1, count // 3)):
        pool += probes(service, seed + n)
    random.Random(seed).shuffle(pool)
    right = [None] * len(pool)
    for fault in catalog["faults"]:
        faults[fault["name"]] = collections.Counter()
        used = 0
        for n, body in enumerate(pool):
            if used == count:
                break
            if right[n] is None:
                right[n] = tensors_of(service.ask(dict(body, audit="off"))[1])
            status, answer = service.ask(dict(body, inject=fault["name"], audit="off"))
            if status != 200:
                continue
            faulty = tensors_of(answer)
            if first_clear(faulty, right[n], "float64", tolerances) is None:
                continue
            used += 1
            for scope in SCOPES:
                for precision in PRECISIONS:
                    got = trial(service, body, fault, faulty, right[n], scope, precision, tolerances)
                    if got is None:
                        continue
                    add(cells[scope, precision], got)
                    if scope == "all objects" and precision == "float64":
                        add(faults[fault["name"]], got)
    return cells, faults


def add(counter, got):
    counter["cases"] += 1
    for key, value in zip(("first", "best", "named", "silent"), got):
        counter[key] += value


def alarms(service, count, seed):
    """Right tensors, any subset, every precision: (sent, called incorrect, inconclusive)."""
    draw, sent, wrong, open_ = random.Random(seed), 0, [], 0
    problem = 0
    while sent < count:
        body = random_problem(seed + 100000 + problem)
        problem += 1
        answer = service.ask(dict(body, audit="off"))[1]
        right = tensors_of(answer)
        for precision in PRECISIONS * 2:
            names = sorted(right) if draw.random() < 0.3 else \
                draw.sample(sorted(right), draw.randint(1, len(right)))
            given = {n: rounded(right[n], precision) for n in names}
            status, said = judged(service, body, given, precision)
            if status != 200:
                raise SystemExit("right tensors: %s" % said)
            sent += 1
            open_ += said["verdict"] == "inconclusive"
            if said["verdict"] == "incorrect" or said["diagnoses"]:
                wrong.append("%s, problem %d, given %s: %s" % (
                    precision, seed + 100000 + problem - 1, " ".join(names),
                    said["first_incorrect"]))
    return sent, wrong, open_


def share(part, whole):
    return "-" if not whole else "%.1f %%" % (100 * part / whole)


def report(binary, args, cells, faults, alarm, seconds):
    sent, wrong, open_ = alarm
    print("# The auditor, measured\n")
    print("`make bench-audit`: every fault of the catalog (%d) injected over HTTP into at most %d "
          "problems of random sizes and rules, seed %d; what the faulty layer computed is rounded and "
          "sent to `/v1/audit`. A case counts where the fault moves a number by at least %d "
          "tolerances. %d cases, %.0f s.\n" % (len(faults), args.count, args.seed, CLEAR,
                                               sum(c["cases"] for c in cells.values()), seconds))
    print("first: the first wrong object among those given is right. best: the fault, or what it "
          "cannot be told from on that input, is the best diagnosis. named: it is among the "
          "diagnoses. no cause: no fault was named (the honest answer where none fits). With Y alone the "
          "first wrong object can only be Y; what is less than certain there is telling a small fault "
          "from coarse rounding.\n")
    print("| given | rounded to | cases | first | best | named | no cause |")
    print("|---|---|---|---|---|---|---|")
    for scope in SCOPES:
        for precision in PRECISIONS:
            c = cells[scope, precision]
            print("| %s | %s | %d | %s | %s | %s | %s |" % (
                scope, precision, c["cases"], share(c["first"], c["cases"]),
                share(c["best"], c["cases"]), share(c["named"], c["cases"]),
                share(c["silent"], c["cases"])))
    print("\nFalse alarms on right tensors (random problems, random subsets, four precisions): "
          "**%d in %d**; %d were inconclusive: they held nothing that shows the weights or the "
          "output.\n" % (len(wrong), sent, open_))
    for line in wrong[:20]:
        print("- %s" % line)
    missed = {n: c for n, c in faults.items() if c["cases"] and c["best"] < c["cases"]}
    unseen = sorted(n for n, c in faults.items() if not c["cases"])
    print("Faults that are not always the best diagnosis with all objects in float64 "
          "(%d of %d):\n" % (len(missed), len(faults)))
    for name, c in sorted(missed.items(), key=lambda row: row[1]["best"] / row[1]["cases"]):
        print("- `%s`: first %d, best %d, named %d of %d" % (name, c["first"], c["best"], c["named"],
                                                            c["cases"]))
    print("\nFaults that no problem of this run showed: %s." % (", ".join(unseen) or "none"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--right", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    start = time.monotonic()
    with Service(args.binary) as service:
        catalog = json.loads(service.send("GET", "/v1/catalog")[2])
        tolerances = Tolerances(catalog)
        cells, faults = measure(service, catalog, args.count, args.seed, tolerances)
        alarm = alarms(service, args.right, args.seed)
    report(args.binary, args, cells, faults, alarm, time.monotonic() - start)
    return 1 if alarm[1] else 0


if __name__ == "__main__":
    sys.exit(main())
