#!/usr/bin/python3
"""Tensors of the right layer and of every injected fault, sent back to /v1/audit.

usage: run_audit.py BINARY [--count N] [--seed S]
The right tensors must be called correct, in any subset and any form; those of a fault
that shows must be called incorrect at the fault's object, with the fault as the best diagnosis or,
in few cases, none.
Start reading at right() and faulty().
"""
import json
import random
import sys

from client import Service, Tally, seeded
from run_faults import problem
from tensors import read, write

OUTCOME = {"A", "H", "Y"}    # of candidates without these, right ones may be inconclusive
UNNAMED = "the place, and no cause"     # honest, and rare
UNNAMED_SHARE = 0.02
NAMES = ["Q", "K", "V", "S", "M", "A", "H", "Y"]
# Injected with one constant of many: a fault of its own may be that constant's better name.
FITTED = {"window_other_width", "causal_other_offset"}
PROBLEM_FIELDS = ["shapes", "dtype", "inputs", "weights", "score", "position", "sink",
                  "masks", "empty_rows"]


def audited(service, body, candidate):
    request = {k: body[k] for k in PROBLEM_FIELDS if k in body}
    return service.ask(dict(request, candidate=candidate), "/v1/audit")


def right(service, body, tensors, draw):
    """Our own tensors, any subset of them in any form: correct, without an alarm."""
    chosen = draw.sample(sorted(tensors), draw.randint(1, len(tensors)))
    for names in (sorted(tensors), chosen):
        forms = {n: write(tensors[n], draw.choice(["nested", "flat", "base64"]))
                 for n in names}
        status, answer = audited(service, body, forms)
        if status != 200:
            return ["status %d: %s" % (status, answer.get("detail"))]
        decided = OUTCOME & set(names)
        if answer["verdict"] not in ("correct", "correct" if decided else "inconclusive") \
                or answer["first_incorrect"] is not None:
            said = (names, answer["verdict"], answer["first_incorrect"])
            return ["%s: %s at %s" % said]
        if answer["diagnoses"]:
            return ["%s: alarm %s" % (names, answer["diagnoses"][0]["fault"])]
    return []


def faulty(service, body, fault):
    """None where the fault does not show; otherwise sentences."""
    status, answer = service.ask(dict(body, inject=fault["name"]))
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail"))]
    if answer["audit"]["first_incorrect"] is None:
        return None
    candidate = {n: answer["tensors"][n] for n in NAMES if n in answer["tensors"]}
    if fault["object"].startswith("d"):
        return None
    status, said = audited(service, body, candidate)
    if status != 200:
        return ["status %d: %s" % (status, said.get("detail"))]
    if said["verdict"] == "correct" and said["accepted_forms"]:
        return None                # here the fault is another right form
    if (said["verdict"], said["first_incorrect"]) != ("incorrect", fault["object"]):
        return ["%s at %s, want %s" % (said["verdict"], said["first_incorrect"],
                                       fault["object"])]
    if fault["name"] in [row["fault"] for row in said["cannot_be_told_apart"]]:
        return []                  # found, and said that this input cannot show what it is
    named = [d["fault"] for d in said["diagnoses"][:1]]
    for diagnosis in said["diagnoses"][:1]:
        named += diagnosis.get("indistinguishable_from") or []
    if fault["name"] in named or (fault["name"] in FITTED and named):
        return []
    return ["diagnosed as %s" % named] if named else UNNAMED


def main():
    args = seeded(20)
    tally, unnamed = Tally(), []
    with Service(args.binary) as service:
        faults = json.loads(service.send("GET", "/v1/catalog")[2])["faults"]
        for seed in args.seeds:
            body = problem(seed)[0]
            _, answer = service.ask(body)
            tensors = {n: read(v) for n, v in answer["tensors"].items() if n in NAMES}
            tally.record("right seed %d" % seed,
                         right(service, body, tensors, random.Random(seed)))
            for fault in faults:
                wrong = faulty(service, body, fault)
                if wrong is UNNAMED:
                    unnamed.append("%s seed %d" % (fault["name"], seed))
                elif wrong is not None:
                    tally.record("%s seed %d" % (fault["name"], seed), wrong)
    print("the place and no cause: %s" % ", ".join(unnamed or ["never"]))
    few = len(unnamed) <= UNNAMED_SHARE * tally.passed
    tally.record("causes known", [] if few else ["%d are not" % len(unnamed)])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
