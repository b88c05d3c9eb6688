#!/usr/bin/python3
"""The scripts of examples/audit against the running service: right layers pass, broken ones do not.

usage: run_scripts.py BINARY
audit.mjs is run where node is, audit_torch.py where torch is.  Start reading at main().
"""
import os
import re
import shutil
import subprocess
import sys

from client import Service, Tally

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/audit")
SCRIPTS = [
    ([sys.executable, "audit_numpy.py"], "numpy", ["scores_unscaled", "heads_joined_by_view",
     "heads_tiled", "mask_after_softmax", "future_leaks", "weights_over_queries"]),
    (["node", "audit.mjs"], None, ["scores_unscaled", "mask_after_softmax", "future_leaks",
     "heads_summed", "output_missing"]),
    ([sys.executable, "audit_torch.py", "--layer", "mha"], "torch",
     ["mask_inverted", "dropout_in_eval"]),
    ([sys.executable, "audit_torch.py", "--layer", "own"], "torch",
     ["scores_unscaled", "heads_joined_by_view", "mask_inverted"]),
]


def runs(command, module):
    if not shutil.which(command[0]):
        return False
    probe = [command[0], "-c", "import " + module] if module else [command[0], "--version"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def said(command, url, broken):
    more = ["--break", broken] if broken else []
    return subprocess.run(command + ["--url", url] + more, capture_output=True, text=True,
                          cwd=FOLDER)


def wrong_of(answer, broken):
    """Sentences: exit 0 and CORRECT, or exit 1, INCORRECT and a place or a cause."""
    word = "INCORRECT" if broken else "CORRECT"
    if answer.returncode != (1 if broken else 0):
        return ["exit %d: %s" % (answer.returncode, (answer.stderr or answer.stdout)[-300:])]
    if not re.search(r"\b%s\b" % word, answer.stdout):
        return ["not %s: %s" % (word, answer.stdout[:200])]
    if broken and "first wrong object" not in answer.stdout and "cause:" not in answer.stdout:
        return ["no place: %s" % answer.stdout[:300]]
    return []


def main():
    tally = Tally()
    with Service(sys.argv[1]) as service:
        url = "http://127.0.0.1:%d" % service.port
        for command, module, breaks in SCRIPTS:
            name = " ".join(os.path.basename(part) for part in command[1:])
            if not runs(command, module):
                print("SKIP %s: no %s" % (name, module or command[0]))
                tally.skipped += 1
                continue
            for broken in [None] + breaks:
                tally.record("%s %s" % (name, broken or "right"),
                             wrong_of(said(command, url, broken), broken))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
