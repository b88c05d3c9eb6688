#!/usr/bin/python3
"""Worked examples, solved by hand, through the running service.

usage: run_worked.py BINARY
The requests are the folders ../cases/valid/worked-*; here stand the numbers as printed in
the books.  Start reading at EXAMPLES.
"""
import json
import os
import sys

import numpy as np

from client import Service, Tally
from tensors import read

VALID = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cases/valid")


def rows(*patterns):
    """Rows of 0 and 1 as booleans."""
    return [[c == "1" for c in row] for row in patterns]


# folder, tensor (d... = gradient), index into it, printed value, half a unit of its last
# digit
EXAMPLES = [
    ("two-scores", "A", (0,), [0.25, 0.75], 1e-15),
    ("two-scores", "H", (0, 0), 5, 1e-14),
    ("two-scores", "dS", (0,), [-0.75, 0.75], 1e-14),
    ("first-causal-position", "H", (0, 0), 2, 0),
    ("first-causal-position-other-future", "H", (0, 0), 2, 0),
    ("document-from-slot-5", "allowed", (7,), rows("0000011100")[0], 0),
    ("identity-queries-scale-1", "A", (0,), [0.268941, 0.731059], 5e-7),
    ("identity-queries-scale-1", "H", (0,), [2.462117, 3.462117], 5e-7),
    ("identity-queries-default-scale", "A", (0,), [0.330238, 0.669762], 5e-7),
    ("identity-queries-default-scale", "H", (0,), [2.339523, 3.339523], 5e-7),
    ("identity-queries-additive", "S", (0,), [1.523188, 0.964028], 5e-7),
    ("identity-queries-additive", "A", (0,), [0.636258, 0.363742], 5e-7),
    ("lookup-scale-1", "A", (0,), [0, 0, 0.5, 0.5], 1e-15),
    ("lookup-scale-1", "H", (0,), [550, 5.5], 1e-12),
    ("lookup-default-scale", "A", (0,), [0, 0, 0.5, 0.5], 1e-15),
    ("lookup-default-scale", "H", (0,), [550, 5.5], 1e-12),
    ("self-attention-by-hand", "S", (), [[1, 0, .5], [0, 1, .5], [.5, .5, 1]], 0),
    ("self-attention-by-hand", "A", (0,), [0.506480, 0.186324, 0.307196], 5e-7),
    ("mask-before-softmax", "S", (0,), [2, 4, 6], 0),
    ("mask-before-softmax", "A", (0,), [0.119203, 0.880797, 0], 5e-7),
    ("mask-before-softmax", "A", (0, 2), 0, 0),
    ("window-left-1-right-2", "H", (slice(None), 0), [1, 1.5, 2.5, 3, 3.5], 1e-15),
    ("causal-2x5-bottom-right", "allowed", (), rows("11110", "11111"), 0),
    ("causal-2x5-top-left", "allowed", (), rows("10000", "11000"), 0),
    ("causal-5x2-bottom-right", "allowed", (), rows("00", "00", "00", "10", "11"), 0),
    ("causal-5x2-bottom-right", "A", (slice(0, 3),), [[0, 0]] * 3, 0),
    ("causal-5x2-bottom-right", "H", (slice(0, 3),), [[0, 0]] * 3, 0),
    ("packed-documents", "allowed", (), rows("100000", "110000", "001000", "001100",
                                             "001110", "000001"), 0),
]

# folder, shapes that the answer must state
SHAPES = [("output-width", {"H": [12, 6], "Y": [12, 10]})]

# folder, supervision: a label is the next token of the same document; outside is unknown
SUPERVISED = [("document-from-slot-5", rows("1111011110")[0]),
              ("packed-documents", rows("101100")[0])]


def request(folder):
    with open("%s/worked-%s/request.json" % (VALID, folder), encoding="utf-8") as file:
        return json.load(file)


def example_wrong(answer, name, at, printed, half_unit):
    source = answer["tensors"]
    if name in answer.get("gradients", {}):
        source = answer["gradients"]
    got, want = read(source[name])[at], np.array(printed)
    if got.shape != want.shape:
        return ["%s: shape %s, want %s" % (name, got.shape, want.shape)]
    if want.dtype == bool:
        close = np.array_equal(got, want)
    else:
        close = np.all(np.abs(got - want) <= half_unit + 1e-16)
    said = (name, list(at), got.tolist(), printed)
    return [] if close else ["%s%s: got %s, want %s" % said]


def supervision_wrong(answer, want):
    got = answer.get("supervision")
    return [] if got == want else ["supervision: got %s, want %s" % (got, want)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tally, answers = Tally(), {}
    with Service(sys.argv[1]) as service:
        for folder in sorted({row[0] for row in EXAMPLES + SHAPES + SUPERVISED}):
            status, answer = service.ask(request(folder))
            if status == 200:
                answers[folder] = answer
            else:
                tally.record(folder, ["status %d: %s" % (status, answer.get("detail"))])
    for folder, name, at, printed, half_unit in EXAMPLES:
        if folder in answers:
            wrong = example_wrong(answers[folder], name, at, printed, half_unit)
            tally.record(folder, wrong)
    for folder, want in SHAPES:
        got = answers.get(folder, {}).get("shapes", {})
        tally.record(folder, ["shapes: got %s, want %s" % (got, want)]
                     if any(got.get(k) != v for k, v in want.items()) else [])
    for folder, want in SUPERVISED:
        if folder in answers:
            tally.record(folder, supervision_wrong(answers[folder], want))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
