#!/usr/bin/python3
"""Probes: problems in which every fault of the catalog shows, right tensors and faulty ones.

usage: run_probe.py BINARY [--count N] [--seed S]
The reference computes the right tensors of every problem, which must be called correct and
alike where a companion says so.  Every fault must show in the problem that is said to show
it, change nothing where it is said to be hidden, and be named.  Start reading at main().
"""
import json
import sys

from client import Service, Tally, seeded
from reference import answers
from reference_grad import gradients
from tensors import write

# Injected with one constant of many: a fault of its own may be that constant's better name.
FITTED = {"window_other_width", "causal_other_offset"}
# Hidden as what they are: what they do then is that of another fault, or of none that is known.
LIKE_ANOTHER = {"masked_row_nan_spreads", "fp16_mask_sum_leaks", "fp16_mask_overflow_nan"}
FORWARD = ["Q", "K", "V", "S", "M", "A", "H", "Y"]
OWN_SHAPES = [
    ({"d_k": 1}, "scale_missing"),
    ({"T": 4, "T_kv": 4}, "causal_top_left"),
    ({"heads": 4, "kv_heads": 4}, "gqa_tile"),
    ({"heads": 1, "kv_heads": 1}, "heads_summed"),
    ({"B": 1}, "batch_mask_from_first"),
]


def problems(answer):
    """(name, problem) of the main problem and its companions."""
    return [("main", answer["problem"])] + [(c["name"], c["problem"])
                                            for c in answer["companions"]]


def right(problem):
    """Every default tensor and gradient, as the reference computes them."""
    tensors, p, t = answers(dict(problem))
    if "gradients" in problem:
        tensors.update(gradients(p, t))
    return {name: write(x.astype(bool) if x.dtype == bool else x.astype(float), "nested")
            for name, x in tensors.items()}


def judged(service, problem, candidate, companions=()):
    body = dict(problem, candidate=candidate)
    if companions:
        body["companions"] = companions
    return service.ask(body, "/v1/audit")


def right_is_right(service, answer):
    """One audit of everything the probe issued."""
    names = {c["name"]: c["of"] for c in answer["companions"]}
    made = [(name, problem, right(problem)) for name, problem in problems(answer)]
    companions = [{"name": name, "of": names[name] or "main", "problem": problem,
                   "candidate": tensors} for name, problem, tensors in made[1:]]
    status, said = judged(service, made[0][1], made[0][2], companions[:16])
    if status != 200:
        return ["status %d: %s at %s" % (status, said.get("detail"), said.get("pointer"))]
    wrong = []
    for name, part in [("main", said)] + [(c["name"], c) for c in said["companions"]]:
        if part["verdict"] != "correct" or part["diagnoses"]:
            wrong.append("%s: %s at %s" % (name, part["verdict"], part["first_incorrect"]))
        alike = part.get("rows_alike")
        if alike and names[name] and not (alike["holds"] and alike["rows_compared"] > 0):
            wrong.append("%s: rows alike: %s" % (name, alike))
    return wrong


def injected(service, problem, fault):
    status, answer = service.ask(dict(problem, inject=fault))
    if status != 200:
        return None, "status %d: %s" % (status, answer.get("detail"))
    tensors = {n: answer["tensors"][n] for n in FORWARD if n in answer["tensors"]}
    tensors.update({n: x for n, x in answer.get("gradients", {}).items() if n != "check"})
    return tensors, None


def named(said, fault):
    for cause in said["diagnoses"][:1]:
        return fault in FITTED or fault in [cause["fault"]] + cause["indistinguishable_from"]
    return False


def fault_shows(service, problem, fault):
    """The faulty tensors are incorrect, first at the fault's object, and named."""
    tensors, failure = injected(service, problem, fault["name"])
    if failure:
        return [failure]
    status, said = judged(service, problem, tensors)
    if status != 200:
        return ["status %d: %s" % (status, said.get("detail"))]
    if said["verdict"] != "incorrect" or said["first_incorrect"] != fault["object"]:
        return ["%s at %s, want %s" % (said["verdict"], said["first_incorrect"],
                                       fault["object"])]
    if not named(said, fault["name"]):
        return ["diagnosed as %s" % [d["fault"] for d in said["diagnoses"][:2]]]
    return []


def fault_hides(service, problem, fault):
    """Where a fault is said to be hidden, the faulty tensors are the right ones."""
    tensors, failure = injected(service, problem, fault["name"])
    if failure:
        return [failure]
    status, said = judged(service, problem, tensors)
    if fault["name"] in LIKE_ANOTHER and status == 200:
        return []
    if status != 200 or said["verdict"] != "correct":
        return ["hidden, but %s at %s" % (said.get("verdict"), said.get("first_incorrect"))]
    return []


def by_default(service, seed, faults, tally):
    _, answer = service.ask({"seed": seed}, "/v1/probe")
    again = service.ask({"seed": seed}, "/v1/probe")[1]
    tally.record("seed %d again" % seed,
                 [] if again["problem"] == answer["problem"] else ["another problem"])
    tally.record("right seed %d" % seed, right_is_right(service, answer))
    issued, hidden = dict(problems(answer)), {h["fault"]: h for h in answer["hides"]}
    for fault in faults:
        name = fault["name"]
        place = hidden[name]["shown_by"] if name in hidden else "main"
        if place is None:
            tally.record("%s seed %d" % (name, seed), ["no problem shows it"])
            continue
        tally.record("%s seed %d in %s" % (name, seed, place),
                     fault_shows(service, issued[place], fault))
        if name in hidden:
            tally.record("%s seed %d hidden" % (name, seed),
                         fault_hides(service, issued["main"], fault))


def own_sizes(service, tally):
    """What own sizes hide is told."""
    for shapes, fault in OWN_SHAPES:
        status, answer = service.ask({"shapes": shapes}, "/v1/probe")
        told = [h["fault"] for h in answer.get("hides", [])]
        tally.record("own sizes %s" % shapes, [] if status == 200 and fault in told
                     else ["%d, hides lack %s" % (status, fault)])
        tally.record("own sizes %s right" % shapes, right_is_right(service, answer))


def purposes(service, catalog, tally):
    for purpose in catalog["purposes"]:
        _, answer = service.ask({"purpose": [purpose["name"]], "seed": 3}, "/v1/probe")
        tally.record("purpose %s" % purpose["name"], right_is_right(service, answer))


def main():
    args = seeded(2)
    tally = Tally()
    with Service(args.binary) as service:
        catalog = json.loads(service.send("GET", "/v1/catalog")[2])
        for seed in args.seeds:
            by_default(service, seed, catalog["faults"], tally)
        own_sizes(service, tally)
        purposes(service, catalog, tally)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
