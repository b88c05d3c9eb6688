#!/usr/bin/python3
"""The worked examples of CONTRIBUTING.md: taken from the page, built into a copy, asked.

usage: run_contributing.py BINARY
The objects beside BINARY are copied with the sources, so that only what the examples touch
is compiled again.  Expected pairs and scores come from the formulas.  Start reading at main().
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from client import Service, Tally, arrays

RULE = "## A mask rule, from its first line to its last"
SCORE = "## A score function: one row and one function"
TABLE = "/* ---- the table ---- */"
SCORES = "static const struct attn_score_row SCORES[] = {"
SOURCES = ["Makefile", "api", "core", "server", "examples", "scripts", "openapi.yaml"]
GAPS = [-1, 0, 1, 2, 7, 1 << 53]
T_Q, T_KV = 3, 7


def blocks(heading):
    """The function, the row, the request and its answer that a section holds."""
    with open("CONTRIBUTING.md", encoding="utf-8") as page:
        section = page.read().split(heading)[1].split("\n## ")[0]
    found = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    languages = [language for language, _ in found]
    if languages != ["c", "c", "json", "text"]:
        raise SystemExit("%s holds the blocks %s" % (heading, languages))
    return [text for _, text in found]


def add(path, table, function, row):
    """The function before the table and the row as its last."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    assert source.count(table) == 1, "%s has lost its line %s" % (path, table)
    before, after = source.split(table)
    rows, rest = after.split("};\n", 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + function + "\n" + table + rows + row + "};\n" + rest)


def built(binary, folder, rule, score):
    """A service with the rule and the score function: its path."""
    for name in SOURCES:
        copy = shutil.copytree if os.path.isdir(name) else shutil.copy2
        copy(name, os.path.join(folder, name))
    for name in ("obj", "gen"):
        shutil.copytree(os.path.join(os.path.dirname(binary), name),
                        os.path.join(folder, "build", name))
    add(os.path.join(folder, "core", "attn_mask.c"), TABLE, *rule[:2])
    add(os.path.join(folder, "core", "attn_score.c"), SCORES, *score[:2])
    subprocess.run(["make", "-C", folder, "build", "BUILD=build", "CI=1"], check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(folder, "build", os.path.basename(binary))


def problem(masks, **more):
    """Three queries at the end of seven keys: the offset of positions is 4."""
    return {"shapes": {"heads": 2, "d_k": 2, "d_v": 3, "d_model": 5},
            "inputs": {"X": {"init": "normal", "seed": 1, "shape": [T_Q, 5]},
                       "X_kv": {"init": "normal", "seed": 2, "shape": [T_KV, 5]}},
            "weights": {name: {"init": "normal", "seed": seed}
                        for seed, name in enumerate(["W_Q", "W_K", "W_V", "W_O"], 3)},
            "masks": masks, "return": ["allowed", "A", "Y"], "audit": "full", **more}


def pairs(gap, causal=False):
    """allowed [T_Q][T_KV], from the formula alone."""
    here = T_KV - T_Q
    return [[(gap < 0 or (i + here - j) % (gap + 1) == 0)
             and (not causal or j <= i + here) for j in range(T_KV)] for i in range(T_Q)]


def asked(answer, want):
    """What is wrong with an answer that should allow these pairs in both heads."""
    if "tensors" not in answer:
        return [json.dumps(answer)]
    wrong = [] if answer["tensors"]["allowed"] == [want, want] else ["other pairs allowed"]
    if answer["audit"]["status"] != "pass":
        wrong.append("audit: %s" % answer["audit"]["first_incorrect"])
    if answer["cost"]["pairs"]["allowed_total"] != 2 * sum(map(sum, want)):
        wrong.append("pairs counted: %s" % answer["cost"]["pairs"])
    return wrong


def ask_layer(service, tally):
    causal = {"alignment": "bottom_right"}
    for gap in GAPS:
        tally.record("gap %d" % gap, asked(
            service.ask(problem({"stride": {"gap": gap}}))[1], pairs(gap)))
        tally.record("gap %d, causal" % gap, asked(
            service.ask(problem({"stride": {"gap": gap}, "causal": causal}))[1],
            pairs(gap, True)))
    answer = service.ask(problem({"stride": {"gap": 2}}, gradients={"check": True},
                                 ablations=[{"target": "masks.stride", "change": "remove"}]))[1]
    tally.record("gradients", [] if answer["gradients"]["check"]["status"] == "pass"
                 else [str(answer["gradients"]["check"])])
    tiled = service.ask(problem({"stride": {"gap": 2}}, path="tiled", **{"return": ["Y"]}))[1]
    difference = np.max(np.abs(arrays(tiled["tensors"])["Y"] - arrays(answer["tensors"])["Y"]))
    tally.record("tiled", [] if difference < 1e-12 else ["Y differs by %g" % difference])
    changed = answer["ablations"][0]["changed"]
    tally.record("ablation", [] if changed == ["M", "allowed", "A", "H", "Y"] else [changed])


def ask_errors(service, tally):
    for masks, pointer in [({"stride": {"gap": -2}}, "/masks/stride/gap"),
                           ({"stride": {"gap": 0.5}}, "/masks/stride/gap"),
                           ({"stride": {"step": 2}}, "/masks/stride/step"),
                           ({"stride": True}, "/masks/stride"),
                           ({"stride": {}}, "/masks/stride"),
                           ({"strid": {"gap": 1}}, "/masks/strid")]:
        status, answer = service.ask(problem(masks))
        right = status == 422 and answer["pointer"] == pointer
        if "strid" in masks:
            right = right and 'did you mean "stride"?' in answer["detail"]
        tally.record(json.dumps(masks), [] if right else ["%d %s" % (status, answer)])


def ask_audit(service, tally):
    body = problem({"stride": {"gap": 1}})
    right = service.ask(body)[1]["tensors"]
    wrong = dict(right, allowed=[pairs(2), pairs(2)])
    for name, candidate, verdict in [("right", right, ("correct", None)),
                                     ("wrong", wrong, ("incorrect", "M"))]:
        answer = service.ask(dict(body, candidate=candidate), "/v1/audit")[1]
        got = (answer.get("verdict"), answer.get("first_incorrect"))
        tally.record("audit of a %s candidate" % name,
                     [] if got == verdict else ["%s instead of %s" % (got, verdict)])


def ask_page(service, tally, request, answer):
    got = service.ask(json.loads(request))[1]
    rows = "".join(" ".join("01"[allowed] for allowed in row) + "\n"
                   for row in got["tensors"]["allowed"])
    tally.record("the page's request", [] if rows == answer else ["answered:\n" + rows])


def distances(tensors):
    """S_raw of all heads from the answer's own Q and K."""
    return -np.sum((tensors["Q"][..., :, None, :] - tensors["K"][..., None, :, :]) ** 2, -1)


def ask_score(service, tally, request, answer):
    got = service.ask(json.loads(request))[1]
    if "tensors" not in got:
        raise SystemExit(json.dumps(got))
    rows = "".join(" ".join("%g" % s for s in row) + "\n" for row in got["tensors"]["S"])
    tally.record("the page's score", [] if rows == answer else ["answered:\n" + rows])
    states = got["audit"]["status"], got["gradients"]["check"]["status"]
    tally.record("its audit", [] if states == ("pass", "pass") else [str(states)])
    for dtype, path, d_k in [(dtype, path, d_k) for dtype in ("float64", "float32")
                             for path in ("dense", "tiled") for d_k in (3, 1025)]:
        body = problem({"causal": {"alignment": "bottom_right"}}, dtype=dtype, path=path,
                       score={"function": "distance", "scale": 0.5 / d_k})
        body["shapes"]["d_k"] = d_k
        body["return"] = ["Q", "K", "Y"] + (["S_raw"] if path == "dense" else [])
        got = service.ask(body)[1]
        name = "distance, %s, %s, d_k %d" % (dtype, path, d_k)
        if "tensors" not in got:
            tally.record(name, [json.dumps(got)])
            continue
        wrong = [] if got["audit"]["status"] == "pass" else [
            json.dumps([c for c in got["audit"]["checks"] if c["status"] == "fail"])]
        if path == "dense":
            tensors = arrays(got["tensors"])
            want = distances(tensors)
            error = np.max(np.abs(tensors["S_raw"] / want - 1))
            if error > (1e-13 if dtype == "float64" else 1e-6):
                wrong.append("S_raw is off by %g, relative" % error)
        tally.record(name, wrong)
    audited = problem({"causal": {"alignment": "bottom_right"}}, score={"function": "distance"})
    right = service.ask(audited)[1]["tensors"]
    for shift, verdict in [(0, "correct"), (1, "incorrect")]:
        candidate = dict(right, Y=(np.array(right["Y"]) + shift).tolist())
        got = service.ask(dict(audited, candidate=candidate), "/v1/audit")[1]
        tally.record("audit of Y + %d" % shift, [] if got.get("verdict") == verdict
                     else [json.dumps(got)[:400]])


def main():
    rule, score = blocks(RULE), blocks(SCORE)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        binary = built(sys.argv[1], folder, rule, score)
        with Service(binary) as service:
            catalog = json.loads(service.send("GET", "/v1/catalog")[2])
            printed = [row for row in catalog["masks"] if row["name"] == "stride"]
            tally.record("catalog", [] if len(printed) == 1 and
                         [p["name"] for p in printed[0]["parameters"]] == ["gap"]
                         else [str(printed)])
            ask_page(service, tally, *rule[2:])
            ask_layer(service, tally)
            ask_errors(service, tally)
            ask_audit(service, tally)
            ask_score(service, tally, *score[2:])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
