#!/usr/bin/python3
"""What must stay, bit for bit: an item alone, earlier rows, other documents, workers.

usage: run_invariance.py BINARY [--count N] [--seed S] [--level 1|2]
Two services run, with one worker and with two; every request goes to both.  Only the
dense and the tiled path are compared within rounding.  Start reading at PROPERTIES.
"""
import argparse
import copy
import json
import random
import sys

import numpy as np

from client import Service, Tally, decoded
from problems import Generator
from reference_read import read_problem
from tensors import first_difference, read

ROWS = ["A", "H", "Y"]   # tensors whose rows belong to queries
PATH_RTOL = {"float64": 1e-12, "float32": 3e-5}      # two orders of the same sums


class Differs(Exception):
    """A sentence: what changed that must not."""


class Pair:
    """The services with one and with two workers, asked as one."""

    def __init__(self, services):
        self.services = services
        catalog = json.loads(services[0].send("GET", "/v1/catalog")[2])
        self.conventions = catalog["conventions"]

    def ask(self, body):
        """Tensors of the answer, after checking that both services gave the same bits."""
        answers = [s.ask(body) for s in self.services]
        for status, answer in answers:
            if status != 200:
                raise Differs("status %d: %s" % (status, answer.get("detail", answer)))
        one, two = (a["tensors"] for _, a in answers)
        for name in one:
            if decoded(one[name]) != decoded(two[name]):
                raise Differs("%s differs between 1 and 2 workers" % name)
        return {name: read(value) for name, value in one.items()}


def must_equal(what, got, want):
    for name in want:
        said = first_difference(got[name], want[name], 0, 0)
        if said:
            raise Differs("%s: %s%s" % (what, name, said))


def item_of(body, b):
    """The request with item b alone, still a batch (of one)."""
    one = copy.deepcopy(body)
    cut(one["inputs"], ("X", "X_kv", "Q", "K", "V"), b)
    cut(one["inputs"].get("past", {}), ("K", "V"), b)
    masks = one.get("masks", {})
    cut(masks.get("padding", {}), ("lengths", "valid"), b)
    cut(masks.get("documents", {}), ("ids", "lengths", "next_id"), b)
    for name in ("allowed", "blocked", "additive"):
        if name in masks and read(masks[name]).ndim > 2:
            cut(masks, (name,), b)
    rope = one.get("position", {}).get("rope", {})
    for name in ("q", "k"):
        if name in rope and isinstance(rope[name][0], list):
            cut(rope, (name,), b)
    if "B" in one.get("shapes", {}):
        one["shapes"]["B"] = 1
    return one


def cut(fields, names, b):
    for name in names:
        if name in fields:
            fields[name] = fields[name][b:b + 1]


def item_alone(pair, body, p, draw):
    """Every tensor of item b is the same alone as in the batch."""
    if not p.batched or p.B < 2:
        return False
    whole = pair.ask(body)
    for b in range(p.B):
        alone = pair.ask(item_of(body, b))
        must_equal("item %d alone" % b, alone, {n: whole[n][b:b + 1] for n in whole})
    return True


def changed_tokens(body, p, tokens, draw):
    """The request with other numbers in the rows `tokens` (b, t) of X, or of K and V."""
    other = copy.deepcopy(body)
    for name in ("X",) if "X" in body["inputs"] else ("Q", "K", "V"):
        x = other["inputs"][name]
        for b, t in tokens:
            item = x[b] if p.batched else x
            for row in ([head[t] for head in item] if isinstance(item[0][0], list)
                        else [item[t]]):
                row[:] = [round(draw.gauss(0, 3), 2) for _ in row]
    return other


def rows_of(p, tensors, kept):
    """The rows (b, i) of A, H and Y, one after the other."""
    out = {}
    for name in ROWS:
        if name not in tensors:
            continue
        x = tensors[name] if p.batched else tensors[name][None]
        axis = 2 if name == "A" and p.headed else 1
        out[name] = np.array([np.take(x[b], i, axis - 1) for b, i in kept])
    return out


def square(p):
    """Query i is new token i: only then do rows and tokens share their numbers."""
    return p.T_q == p.T_new and "X_kv" not in p.params and p.empty_rows != "uniform"


def prefix(pair, body, p, draw):
    """Under a causal rule, changed later tokens leave the earlier rows as they were."""
    if not body.get("masks", {}).get("causal") or not square(p) or p.T_q < 2:
        return False
    last = draw.randrange(p.T_q - 1)
    later = [(b, t) for b in range(p.B) for t in range(last + 1, p.T_q)]
    kept = [(b, i) for b in range(p.B) for i in range(last + 1)]
    return rows_stay("prefix up to %d" % last, pair, body, p, later, kept, draw)


def documents(pair, body, p, draw):
    """Changed tokens of one document change no row of the others."""
    if p.ids is None or not square(p):
        return False
    mine = {(b, t): p.ids[b][p.T_past + t] for b in range(p.B) for t in range(p.T_q)}
    chosen = draw.choice(sorted(set(mine.values())))
    inside = [at for at in mine if mine[at] == chosen]
    kept = [at for at in mine if mine[at] != chosen]
    return bool(kept) and rows_stay("document %d changed" % chosen, pair, body, p, inside,
                                    kept, draw)


def rows_stay(what, pair, body, p, changed, kept, draw):
    before = rows_of(p, pair.ask(body), kept)
    after = rows_of(p, pair.ask(changed_tokens(body, p, changed, draw)), kept)
    must_equal(what, after, before)
    return True


def paths(pair, body, p, draw):
    """The dense and the tiled path agree within rounding."""
    names = ["H", "lse"] + (["Y"] if "W_O" in p.params else [])
    dense, tiled = (pair.ask(dict(body, path=path, **{"return": names}))
                    for path in ("dense", "tiled"))
    for name in names:
        rtol = PATH_RTOL[p.dtype]
        said = first_difference(tiled[name], dense[name], rtol, 0, floor=True)
        if said:
            raise Differs("tiled: %s%s" % (name, said))
    return True


def convention(pair, body, p, draw):
    """A convention means the alignment and empty rows that the catalog lists for it."""
    row = draw.choice(pair.conventions)
    named, spelled = copy.deepcopy(body), copy.deepcopy(body)
    named.pop("empty_rows", None)
    named.setdefault("masks", {})["convention"] = row["name"]
    spelled["empty_rows"] = row["empty_rows"]
    if body.get("masks", {}).get("causal"):
        named["masks"]["causal"] = True
        spelled["masks"]["causal"] = {"alignment": row["alignment"]}
    must_equal(row["name"], pair.ask(named), pair.ask(spelled))
    return True


PROPERTIES = [("item_alone", 1, item_alone), ("prefix", 1, prefix),
              ("documents", 2, documents), ("paths", 2, paths),
              ("convention", 2, convention)]


def plain_problem(seed, level):
    """A random problem as nested lists, without what differs between batch and item."""
    body = Generator(seed, level, forms=("nested",)).problem()
    for name in ("gradients", "traces", "encoding", "path"):
        body.pop(name, None)
    has_output = body.get("weights", {}).get("W_O") is not None
    body["return"] = ["Q", "K", "V", "S", "lse"] + (ROWS if has_output else ROWS[:2])
    body["audit"] = "off"
    return body


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", type=int, default=2)
    args = parser.parse_args()
    print("seed %d, level %d" % (args.seed, args.level))
    tally = Tally()
    held = dict.fromkeys([name for name, _, _ in PROPERTIES], 0)
    with Service(args.binary, "--workers", "1") as one, \
            Service(args.binary, "--workers", "2") as two:
        pair = Pair([one, two])
        for seed in range(args.seed, args.seed + args.count):
            body = plain_problem(seed, args.level)
            p, draw = read_problem(body), random.Random(seed)
            for name, level, holds in PROPERTIES:
                if level > args.level:
                    continue
                try:
                    applies, wrong = holds(pair, body, p, draw), []
                except Differs as why:
                    applies, wrong = True, [str(why)]
                if applies:
                    held[name] += not wrong
                    tally.record("seed %d %s" % (seed, name), wrong)
    print("held: %s" % ", ".join("%s %d" % pair for pair in held.items()))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
