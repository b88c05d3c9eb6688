#!/usr/bin/python3
"""Case files and case folders through the running service.

usage: run_cases.py [--skip-file NAMES] BINARY [FILE.jsonl | FOLDER]...
(without files and folders: every folder of ../cases)
A FILE holds cases of /v1/attention or /v1/audit; a FOLDER holds request.json with
response.json (what the answer must contain) or error.json: ../cases/README.md.
Start reading at run_file() and run_folder().
"""
import argparse
import json
import os
import sys

from cases import compare, load
from client import Service, Tally, arrays, skip_list
from tensors import WORDS

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cases")
NUMBER_RTOL = 1e-9       # numbers of response.json, relative to max(1, abs)


def run_file(service, path, tally):
    for case in load(path):
        if tally.skips(case["id"]):
            continue
        if "verdict" in case["expect"]:
            wrong = audit_case(service, case)
        else:
            wrong = attention_case(service, case)
        tally.record(case["id"], wrong)


def attention_case(service, case):
    status, answer = service.ask(case["request"])
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail", answer))]
    return compare(case, arrays(answer["tensors"]), arrays(answer.get("gradients")))


def audit_case(service, case):
    status, answer = service.ask(case["request"], "/v1/audit")
    if status != 200:
        return ["status %d: %s" % (status, answer.get("detail", answer))]
    wrong = ["%s: got %r, want %r" % (key, answer.get(key), case["expect"][key])
             for key in ("verdict", "first_incorrect")
             if answer.get(key) != case["expect"][key]]
    fault = case["expect"].get("fault")
    found = answer.get("diagnoses") or []
    if fault is not None and not names(found, fault):
        said = [d.get("fault") for d in found[:3]]
        wrong.append("fault: got %r, want %r" % (said, fault))
    if fault is None and found:
        wrong.append("alarm: got %r, want none" % [d.get("fault") for d in found[:3]])
    return wrong


def names(diagnoses, fault):
    """The best diagnosis names the fault, or says that it cannot be told from it."""
    if not diagnoses:
        return False
    best = diagnoses[0]
    return fault in [best.get("fault")] + (best.get("indistinguishable_from") or [])


def run_folder(service, folder, tally):
    name = "/".join(folder.rstrip("/").split("/")[-2:])
    if tally.skips(name):
        return
    path = "/v1/attention"
    if os.path.exists(folder + "/meta.json"):
        path = read_json(folder + "/meta.json").get("path", path)
    raw = folder + ("/request.txt" if os.path.exists(folder + "/request.txt")
                    else "/request.json")
    with open(raw, "rb") as file:
        status, answer = service.ask(file.read(), path)
    if os.path.exists(folder + "/error.json"):
        tally.record(name, error_wrong(read_json(folder + "/error.json"), status, answer))
        return
    if status != 200:
        tally.record(name, ["status %d: %s" % (status, answer.get("detail", answer))])
        return
    want = read_json(folder + "/response.json")
    tally.record(name, list(subset_wrong(want, answer, "")))


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def error_wrong(want, status, answer):
    """status, type, pointer exactly; pointer_under: its start; `contains`: in detail."""
    got = dict(answer, status_line=status)
    wanted = {"status_line": want["status"], "status": want["status"]}
    wanted.update({k: want[k] for k in ("type", "pointer", "object") if k in want})
    wrong = ["%s: got %r, want %r (%s)" % (key, got.get(key), value, answer.get("detail"))
             for key, value in wanted.items() if got.get(key) != value]
    under = want.get("pointer_under")
    if under is not None and not str(answer.get("pointer")).startswith(under):
        wrong.append("pointer: got %r, want below %r" % (answer.get("pointer"), under))
    detail = str(answer.get("detail", ""))
    return wrong + ["detail %r lacks %r" % (detail, part)
                    for part in want.get("contains", []) if part not in detail]


def subset_wrong(want, got, at):
    """Numbers within tolerance, lists element by element, everything else exactly."""
    if isinstance(want, dict):
        for key, value in want.items():
            if not isinstance(got, dict) or key not in got:
                yield "%s/%s: absent" % (at, key)
            else:
                yield from subset_wrong(value, got[key], "%s/%s" % (at, key))
    elif isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            yield "%s: got %s, want %d elements" % (at, json.dumps(got)[:80], len(want))
            return
        for n, value in enumerate(want):
            yield from subset_wrong(value, got[n], "%s/%d" % (at, n))
    elif is_number(want) and is_number(got):
        if abs(got - want) > NUMBER_RTOL * max(1, abs(want)):
            yield "%s: got %r, want %r" % (at, got, want)
    elif type(want) is not type(got) or want != got:
        yield "%s: got %r, want %r" % (at, got, want)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) \
        and value not in WORDS


def folders(path):
    """The folder itself when it is a case, otherwise every case below it, by name."""
    return sorted(base for base, _, files in os.walk(path)
                  if "request.json" in files or "request.txt" in files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-file")
    parser.add_argument("binary")
    parser.add_argument("paths", nargs="*", default=[CASES])
    args = parser.parse_args()
    tally = Tally(skip_list(args.skip_file))
    with Service(args.binary) as service:
        for path in args.paths:
            if os.path.isdir(path):
                for folder in folders(path):
                    run_folder(service, folder, tally)
            else:
                run_file(service, path, tally)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
