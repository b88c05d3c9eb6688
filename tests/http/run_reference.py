#!/usr/bin/python3
"""Proves the reference: against case files made elsewhere; gradients by differences.

Needs no server.  usage: run_reference.py [--seed S] FILE...
"""
import argparse
import sys

from cases import compare, load
from problems import Generator
from reference import answers, forward
from reference_grad import central, gradients
from reference_read import read_problem
from tensors import first_difference

STEP_ERROR = 1e-8        # central differences: step 1e-5 squared, times third derivatives


def against_cases(path, tally):
    for case in load(path):
        tensors, p, t = answers(case["request"])
        grads = gradients(p, t) if p.gradients else {}
        tally(case["id"], compare(case, tensors, grads))


def against_differences(seed, count, tally):
    seen = set()
    for n in range(count):
        body = Generator(seed + n, 2).small_with_gradients()
        p = read_problem(body)
        for name, value in gradients(p, forward(p)).items():
            seen.add(name)
            said = first_difference(value, central(p, name), STEP_ERROR, 0, floor=True)
            tally("difference-%d %s" % (seed + n, name), [said] if said else [])
    print("gradients proven: %s" % " ".join(sorted(seen)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=24)
    args = parser.parse_args()
    count = [0, 0]

    def tally(name, wrong):
        count[bool(wrong)] += 1
        for line in wrong:
            print("FAIL %s %s" % (name, line))

    for path in args.files:
        against_cases(path, tally)
    print("seed %d" % args.seed)
    against_differences(args.seed, args.count, tally)
    print("%d passed, %d failed" % tuple(count))
    return 1 if count[1] else 0


if __name__ == "__main__":
    sys.exit(main())
