"""Case files: one JSON object a line, and how an answer is compared with `expect`.

Not here: who answers (run_cases.py: the service; run_reference.py: the reference).
Start reading at compare().
"""
import json

from tensors import first_difference, read

FORWARD_RTOL = 1e-9      # forward.jsonl states: relative to max(1, abs)


def load(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def compare(case, tensors, gradients):
    """Sentences, one a differing tensor.  `tensors`, `gradients`: arrays by name."""
    expect, wrong = case["expect"], []
    stated = "rtol" in expect
    rtol, atol = expect.get("rtol", FORWARD_RTOL), expect.get("atol", 0)
    for kind, got in (("tensors", tensors), ("gradients", gradients)):
        for name, value in expect.get(kind, {}).items():
            if name not in got:
                wrong.append("%s absent" % name)
                continue
            said = first_difference(got[name], read(value), rtol, atol, floor=not stated)
            if said:
                wrong.append("%s%s" % (name, said))
    return wrong
