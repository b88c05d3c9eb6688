#!/usr/bin/python3
"""Every fault of the catalog, injected into random problems: the audit names the place.

usage: run_faults.py BINARY [--count N] [--seed S]
The reference says which object is the first wrong one; the service's own audit must say
the same, and must pass where the fault changes nothing.  Start reading at judge().
"""
import json
import sys

from client import Service, Tally, arrays, seeded
from problems import Generator
from reference import answers
from reference_grad import gradients
from tensors import first_difference

ORDER = ["Q", "K", "V", "S", "M", "A", "H", "Y"]
GRADIENTS = ["dH", "dV", "dA", "dS", "dQ", "dK", "dW_O", "dW_Q", "dW_K", "dW_V", "dX", "dX_kv",
             "db_Q", "db_K", "db_V", "db_O", "d_additive", "dsink", "dv_a"]
WRONG = 1e-6             # a difference this large must be found
RIGHT = 1e-10            # up to here nothing may be said; between the two, either


def problem(seed):
    """A float64 problem with everything returned, and what the reference makes of it."""
    body = Generator(seed, 2, forms=("nested",)).problem()
    for name in ("traces", "path", "gradients"):
        body.pop(name, None)
    if body.get("empty_rows") in ("error", "nan"):
        body["empty_rows"] = "zero"
    body.update({"dtype": "float64", "return": "all", "audit": "full"})
    if body.get("weights", {}).get("W_O") is not None:
        body["gradients"] = {"of": "Y", "check": True}
    tensors, p, t = answers(body)
    return body, tensors, gradients(p, t) if p.gradients else {}


def first_wrong(got, want, names, tolerance):
    """The first of the names whose tensor is not the reference's, or None."""
    for name in names:
        if name in want and name in got \
                and first_difference(got[name], want[name], tolerance, 0, floor=True):
            return name
    return None


def judge(service, fault, seed_problem):
    """(sentences, whether the fault changed anything)"""
    body, tensors, grads = seed_problem
    status, answer = service.ask(dict(body, inject=fault["name"]))
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail"))], False
    if answer["engine"]["injected_fault"] != fault["name"]:
        return ["injected_fault: %s" % answer["engine"]["injected_fault"]], False
    got, said = arrays(answer["tensors"]), answer["audit"]["first_incorrect"]
    slopes = arrays(answer.get("gradients"))
    places = [first_wrong(got, tensors, ORDER, bound)
              or first_wrong(slopes, grads, GRADIENTS, bound) for bound in (WRONG, RIGHT)]
    # Differences are taken at sampled entries: they may show the fault in a later gradient only.
    if said in GRADIENTS and fault["object"] in GRADIENTS:
        return [], True
    if said not in places:
        return ["first_incorrect %s, want %s" % (said, places[0])], True
    if said is not None and said != fault["object"]:
        return ["%s is wrong first, the catalog says %s" % (said, fault["object"])], True
    return [], said is not None


def main():
    args = seeded(30)
    tally, unseen = Tally(), []
    problems = [(s, problem(s)) for s in args.seeds]
    with Service(args.binary) as service:
        faults = json.loads(service.send("GET", "/v1/catalog")[2])["faults"]
        for fault in faults:
            seen = False
            for seed, made in problems:
                wrong, visible = judge(service, fault, made)
                seen = seen or visible
                tally.record("%s seed %d" % (fault["name"], seed), wrong)
            unseen += [] if seen else [fault["name"]]
    print("%d faults; changed nothing in these problems: %s" % (len(faults),
                                                                ", ".join(unseen)))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
