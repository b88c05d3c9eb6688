#!/usr/bin/python3
"""The position kinds of CONTRIBUTING.md: taken from the page, built into a copy, asked.

usage: run_position_kind.py BINARY
Expected numbers come from the kinds' formulas, in NumPy.  Start reading at main().
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
from run_contributing import SOURCES, add

SECTION = "## Two position kinds"
FILE = os.path.join("core", "attn_position.c")
TABLE = "/* ---- the table %s */" % (69 * "-")
B, T_Q, T_KV, H, D_K = 2, 3, 5, 2, 6
RTOL = {"float64": 1e-12, "float32": 3e-5}
KERPLE = {"r1": 0.75, "r2": 2}
PLACES = {"q": [[3, 0, 7], [1, 1, 2.5]], "k": [0, 2, 4, 6, 9]}


def blocks():
    """The texts of the section's fenced blocks: two functions, two rows, a request, its M."""
    with open("CONTRIBUTING.md", encoding="utf-8") as page:
        section = page.read().split(SECTION)[1].split("\n## ")[0]
    found = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    languages = [language for language, _ in found]
    if languages != ["c", "c", "c", "c", "json", "text"]:
        raise SystemExit("%s holds the blocks %s" % (SECTION, languages))
    return [text for _, text in found]


def built(binary, folder, functions, rows):
    """A service with the kinds: its path.  Only what they touch is compiled again."""
    for name in SOURCES:
        copy = shutil.copytree if os.path.isdir(name) else shutil.copy2
        copy(name, os.path.join(folder, name))
    for name in ("obj", "gen"):
        shutil.copytree(os.path.join(os.path.dirname(binary), name),
                        os.path.join(folder, "build", name))
    for function, row in zip(functions, rows):
        add(os.path.join(folder, FILE), TABLE, function, row)
    subprocess.run(["make", "-C", folder, "build", "BUILD=build", "CI=1"], check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(folder, "build", os.path.basename(binary))


def problem(position, **more):
    """Three queries at the end of five keys: the offset of positions is 2."""
    return {"shapes": {"heads": H, "d_k": D_K, "d_v": 3, "d_model": 4},
            "inputs": {"X": {"init": "normal", "seed": 1, "shape": [B, T_Q, 4]},
                       "X_kv": {"init": "normal", "seed": 2, "shape": [B, T_KV, 4]}},
            "weights": {name: {"init": "normal", "seed": seed}
                        for seed, name in enumerate(["W_Q", "W_K", "W_V", "W_O"], 3)},
            "position": position, "return": "all", "audit": "full", **more}


def kerple(r1=1.0, r2=1.0):
    i, j = np.mgrid[:T_Q, :T_KV]
    return -r1 * np.log1p(r2 * np.abs(i + T_KV - T_Q - j))


def xpos(rows, at, of_key, gamma=0.4, base=512.0):
    """rows [B,h,T,d_k] turned to at [B,T]; complex numbers stand for pairs."""
    at = np.broadcast_to(np.asarray(at, float), (B, rows.shape[2]))[:, None, :, None]
    fraction = np.arange(0, D_K, 2) / D_K
    zeta = ((fraction + gamma) / (1 + gamma)) ** ((-at if of_key else at) / base)
    pair = (rows[..., ::2] + 1j * rows[..., 1::2]) * zeta * np.exp(
        1j * at * 10000.0 ** -fraction)
    out = np.empty_like(rows)
    out[..., ::2], out[..., 1::2] = pair.real, pair.imag
    return out


def differs(name, got, want, dtype="float64"):
    worst = np.max(np.abs(got - want) / np.maximum(1, np.abs(want)))
    return [] if worst < RTOL[dtype] else ["%s differs by %g" % (name, worst)]


def sound(answer):
    """What is wrong with an answer, whatever the kind: audit and gradients."""
    if "tensors" not in answer:
        return [json.dumps(answer)]
    wrong = []
    if answer["audit"]["status"] != "pass":
        wrong.append("audit: %s" % answer["audit"]["first_incorrect"])
    if "gradients" in answer and answer["gradients"]["check"]["status"] != "pass":
        wrong.append("gradients: %s" % answer["gradients"]["check"])
    return wrong


def ask_layer(service, tally):
    causal = {"causal": {"alignment": "bottom_right"}}
    for dtype in RTOL:
        for position, masks in [({"kerple": {}}, {}), ({"kerple": KERPLE}, causal),
                                ({"xpos": {}}, {}), ({"xpos": PLACES}, causal),
                                ({"xpos": dict(PLACES, gamma=0.9, base=4),
                                  "kerple": KERPLE, "alibi": {"slopes": [0.5, 2]}}, causal)]:
            body = problem(position, masks=masks, dtype=dtype)
            answer = service.ask(dict(body, gradients={"check": True}))[1]
            wrong = sound(answer)
            if not wrong:
                got = arrays(answer["tensors"])
                wrong = formulas(position, masks, got, dtype)
                tiled = service.ask(dict(body, path="tiled", audit="sampled",
                                         **{"return": ["Y"]}))[1]
                wrong += sound(tiled) or differs("tiled Y", arrays(tiled["tensors"])["Y"],
                                                 got["Y"], dtype)
            tally.record("%s %s" % (dtype, json.dumps(position)), wrong)


def formulas(position, masks, got, dtype):
    """What the kinds' formulas say against M, Q and K of the answer."""
    wrong = []
    bias = np.zeros((H, T_Q, T_KV))
    if "kerple" in position:
        bias += kerple(**position["kerple"])
    if "alibi" in position:
        bias -= np.reshape(position["alibi"]["slopes"], (H, 1, 1)) * (
            np.expm1(-kerple()))
    open_pair = np.isfinite(got["M"])
    if masks:
        wrong += [] if np.array_equal(open_pair[0, 0], np.tri(T_Q, T_KV, T_KV - T_Q)) else [
            "other pairs allowed"]
    wrong += differs("M", np.where(open_pair, got["M"], 0), np.where(open_pair, bias, 0),
                     dtype)
    if "xpos" not in position:
        return wrong + differs("Q", got["Q"], got["Q_pre"])
    stated = dict({"q": np.arange(T_KV - T_Q, T_KV), "k": np.arange(T_KV)},
                  **position["xpos"])
    places = {name: stated.pop(name) for name in ("q", "k")}
    return (wrong + differs("Q", got["Q"], xpos(got["Q_pre"], places["q"], False, **stated),
                            dtype)
            + differs("K", got["K"], xpos(got["K_pre"], places["k"], True, **stated), dtype))


def ask_errors(service, tally):
    for position, kind, pointer in [
            ({"kerple": {"r3": 1}}, "unknown-field", "/position/kerple/r3"),
            ({"kerple": {"r1": 0}}, "bad-value", "/position/kerple/r1"),
            ({"kerple": {"r2": "1"}}, "wrong-type", "/position/kerple/r2"),
            ({"kerple": True}, "wrong-type", "/position/kerple"),
            ({"kerpl": {}}, "unknown-field", "/position/kerpl"),
            ({"xpos": {"slopes": [1, 2]}}, "unknown-field", "/position/xpos/slopes"),
            ({"xpos": {"k": [0, 1]}}, "wrong-shape", "/position/xpos/k"),
            ({"xpos": {"q": [0, 1, "NaN"]}}, "not-finite", "/position/xpos/q/2"),
            ({"xpos": {}, "rope": {"layout": "half"}}, "contradiction", "/position/xpos")]:
        status, answer = service.ask(problem(position))
        right = (status == 422 and answer["pointer"] == pointer
                 and answer["type"].endswith(kind))
        if "kerpl" in position:
            right = right and 'did you mean "kerple"?' in answer["detail"]
        tally.record(json.dumps(position), [] if right else ["%d %s" % (status, answer)])
    odd = problem({"xpos": {}})
    odd["shapes"]["d_k"] = 5
    status, answer = service.ask(odd)
    tally.record("odd d_k", [] if status == 422 and answer["pointer"] == "/position/xpos"
                 else ["%d %s" % (status, answer)])


def ask_audit(service, tally):
    body = problem({"kerple": KERPLE, "xpos": PLACES})
    right = service.ask(body)[1]["tensors"]
    unturned, unbiased = dict(right, Q=right["Q_pre"]), dict(
        right, M=np.zeros((B, H, T_Q, T_KV)).tolist())
    for name, candidate, verdict in [("right", right, ("correct", None)),
                                     ("not turned", unturned, ("incorrect", "Q")),
                                     ("not biased", unbiased, ("incorrect", "M"))]:
        answer = service.ask(dict(body, candidate=candidate), "/v1/audit")[1]
        got = (answer.get("verdict"), answer.get("first_incorrect"))
        tally.record("audit of a candidate: %s" % name,
                     [] if got == verdict else ["%s instead of %s" % (got, verdict)])


def ask_others(service, tally, request, answer):
    catalog = json.loads(service.send("GET", "/v1/catalog")[2])
    kinds = {row["name"]: row for row in catalog["positions"]}
    wrong = [name for name, on in [("kerple", "M"), ("xpos", "Q,K")]
             if kinds.get(name, {}).get("acts_on") != on]
    wrong += [] if [p["name"] for p in kinds["xpos"]["parameters"]] == [
        "gamma", "base", "q", "k"] else ["parameters of xpos"]
    tally.record("catalog", wrong)
    rows = "".join(" ".join("%.3f" % x for x in row) + "\n" for row in
                   service.ask(json.loads(request))[1]["tensors"]["M"])
    tally.record("the page's request", [] if rows == answer else ["answered:\n" + rows])
    probe = service.ask({"position": {"kerple": KERPLE, "xpos": {"gamma": 0.5}}},
                        "/v1/probe")[1]
    want = {"kerple": KERPLE, "xpos": {"gamma": 0.5, "base": 512}}
    tally.record("a probe states the kinds", [] if want in [
        p.get("problem", {}).get("position") for p in [probe, *probe.get("problems", [])]
        if isinstance(p, dict)] else [json.dumps(probe)[:300]])
    blind = service.ask(problem({"kerple": {}}))[1]["notes"]["not_in_this_layer"]
    tally.record("no longer position-blind",
                 blind if "position information" in blind else [])


def main():
    found = blocks()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        binary = built(sys.argv[1], folder, found[:2], found[2:4])
        with Service(binary) as service:
            ask_others(service, tally, *found[4:])
            ask_layer(service, tally)
            ask_errors(service, tally)
            ask_audit(service, tally)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
