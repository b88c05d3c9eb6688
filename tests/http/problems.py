"""Random requests of POST /v1/attention from a seed: sizes differ, rules are combined.

Level 1 is one head (the first milestone of the service), level 2 everything.
Not here: what the answers must be (reference.py).  Start reading at Generator.problem().
"""
import random

import numpy as np

from reference import forward
from reference_grad import gradients
from reference_read import read_problem
from tensors import write

NAMES_OF_ONE_HEAD = ["Q", "K", "V", "S", "M", "A", "H", "Y", "S_raw", "S_masked",
                     "allowed", "lse", "H_heads", "contributions", "present_K",
                     "present_V", "Q_pre", "K_pre"]
PAIRWISE = {"S", "M", "A", "S_raw", "S_masked", "allowed", "contributions"}
HEADS = [(2, 2), (3, 1), (4, 2), (3, 3), (2, 1), (6, 2)]      # query, key/value
ALIGNMENTS = ["top_left", "bottom_right"]


class Generator:
    """One seed, one problem: everything is drawn from `self.draw`."""

    def __init__(self, seed, level, forms=("nested", "nested", "flat", "base64")):
        self.draw = random.Random("%d/%d" % (seed, level))
        self.level = level
        self.forms = forms
        self.largest = 9

    def chance(self, share):
        return self.draw.random() < share

    def numbers(self, *shape, spread=1.0):
        flat = [round(self.draw.gauss(0, spread), 3) for _ in range(int(np.prod(shape)))]
        return np.array(flat).reshape(shape)

    def booleans(self, *shape, share=0.7):
        flat = [self.chance(share) for _ in range(int(np.prod(shape)))]
        return np.array(flat, bool).reshape(shape)

    def tensor(self, array):
        if self.dtype == "float32" and array.dtype != bool:
            array = array.astype(np.float32)
        return write(array, self.draw.choice(self.forms), self.dtype)

    def problem(self):
        """A valid request body."""
        self.sizes()
        stated = self.dtype == "float32" or self.chance(0.3)
        body = {"dtype": self.dtype} if stated else {}
        body["inputs"] = self.inputs()
        weights = self.weights()
        if weights:
            body["weights"] = weights
        shapes = self.shapes()
        if shapes:
            body["shapes"] = shapes
        masks = self.masks()
        if masks:
            body["masks"] = masks
        score = self.score()
        if score:
            body["score"] = score
        if self.level > 1:
            self.extras(body)
        self.empty_rows(body)
        self.returned(body)
        if "gradients" in body and self.chance(0.4):
            p = read_problem(body)
            names = sorted(gradients(p, forward(p)))
            chosen = self.draw.sample(names, self.draw.randint(1, len(names)))
            body["gradients"]["with_respect_to"] = chosen
        return body

    def sizes(self):
        self.dtype = "float32" if self.chance(0.3) else "float64"
        top = self.largest
        few = self.draw.sample(range(2, top + 1), 5 if top > 5 else 4)
        self.T_q, self.T_new, self.d_model, self.d_k = few[:4]
        self.d_v = few[4] if top > 5 else self.draw.randint(1, top)
        self.d_k, self.d_v = min(self.d_k, 7), min(self.d_v, 7)
        if self.chance(0.15):
            setattr(self, self.draw.choice(["T_q", "T_new", "d_model", "d_k", "d_v"]), 1)
        self.kind = self.draw.choice(["self", "self", "cross", "projected"])
        if self.kind == "self" or self.chance(0.15):
            self.T_new = self.T_q
        self.batched = self.chance(0.6)
        self.B = self.draw.choice([1, 2, 2, 3]) if self.batched else 1
        self.headed, self.h, self.g = self.chance(0.4), 1, 1
        if self.level > 1 and self.chance(0.7):
            self.headed = True
            self.h, self.g = self.draw.choice(HEADS)
        self.rope = self.level > 1 and self.chance(0.3)
        if self.rope:
            self.d_k = self.draw.choice([2, 4, 6])
        cached = self.level > 1 and self.chance(0.25)
        self.T_past = self.draw.randint(1, 4) if cached else 0
        self.T_kv = self.T_past + self.T_new

    def batch(self, *shape):
        return (self.B,) + shape if self.batched else shape

    def inputs(self):
        out = {}
        if self.kind == "projected":
            self.rank_4 = self.batched and self.headed and self.chance(0.5)
            for name, T, heads, d in (("Q", self.T_q, self.h, self.d_k),
                                      ("K", self.T_new, self.g, self.d_k),
                                      ("V", self.T_new, self.g, self.d_v)):
                shape = (self.B, heads, T, d) if self.rank_4 else self.batch(T, heads * d)
                out[name] = self.tensor(self.numbers(*shape, spread=1.3))
        else:
            out["X"] = self.tensor(self.numbers(*self.batch(self.T_q, self.d_model)))
        if self.kind == "cross":
            out["X_kv"] = self.tensor(self.numbers(*self.batch(self.T_new, self.d_model)))
        if self.T_past:
            out["past"] = {n: self.tensor(self.numbers(self.B, self.g, self.T_past, d))
                           for n, d in (("K", self.d_k), ("V", self.d_v))}
        return out

    def weights(self):
        out = {}
        linear = self.level > 1 and self.chance(0.25)
        width = {"Q": self.h * self.d_k, "K": self.g * self.d_k, "V": self.g * self.d_v}
        spread = 1.3 / np.sqrt(self.d_model)
        joined = self.h * self.d_v
        shapes = {} if self.kind == "projected" else \
            {"W_" + n: (self.d_model, w) for n, w in width.items()}
        self.has_output = self.chance(0.5 if self.kind == "projected" else 0.85)
        if self.has_output:
            shapes["W_O"] = (joined, self.d_model)
        elif self.kind != "projected" or self.chance(0.3):
            out["W_O"] = None
        for name, shape in shapes.items():
            w = self.numbers(*shape, spread=spread)
            out[name] = self.tensor(w.T.copy() if linear else w)
            bias = "b_" + name[2:]
            if self.level > 1 and self.chance(0.25):
                out[bias] = self.tensor(self.numbers(shape[1], spread=0.5))
        if linear and out:
            out["convention"] = "torch_linear"
        return out

    def shapes(self):
        out = {}
        if self.headed:
            out["heads"] = self.h
            if self.g != self.h or self.chance(0.4):
                out["kv_heads"] = self.g
        known = {"d_k": self.d_k, "d_v": self.d_v}
        if self.batched:
            known["B"] = self.B
        if self.kind == "self" and not self.T_past:
            known["T"] = self.T_q
        if self.kind != "projected" or self.has_output:
            known["d_model"] = self.d_model
        if self.chance(0.5):
            out.update({k: v for k, v in known.items() if self.chance(0.5)})
        return out

    def pairs(self, fill):
        """A mask tensor of rank 2, 3 or 4."""
        pair = (self.T_q, self.T_kv)
        return self.tensor(fill(*self.draw.choice(
            [pair, (self.B,) + pair, (self.B, self.h) + pair])))

    def masks(self):
        out = {}
        if self.chance(0.45):
            out["causal"] = {"alignment": self.draw.choice(ALIGNMENTS)}
            if self.T_q == self.T_new and self.chance(0.7):
                out["causal"] = True
        if self.chance(0.3):
            lengths = [self.draw.randint(0 if self.chance(0.1) else 1, self.T_kv)
                       for _ in range(self.B)]
            out["padding"] = {"lengths": lengths}
            if self.chance(0.5):
                valid = self.booleans(self.B, self.T_kv)
                out["padding"] = {"valid": self.tensor(valid)}
        if self.chance(0.2):
            out["allowed"] = self.pairs(self.booleans)
        if self.chance(0.2):
            out["blocked"] = self.pairs(lambda *shape: self.booleans(*shape, share=0.25))
        if self.chance(0.25):
            out["additive"] = self.pairs(self.bias)
        if self.level > 1 and self.chance(0.3):
            out["window"] = {side: self.draw.randint(-1, 3) for side in ("left", "right")}
        if self.level > 1 and self.T_q == self.T_new and self.kind != "cross" \
                and self.chance(0.5):
            out["documents"] = self.documents()
            if self.chance(0.3):
                after = [self.draw.randint(-1, 3) for _ in range(self.B)]
                out["documents"]["next_id"] = after
        return out

    def bias(self, *shape):
        x = self.numbers(*shape)
        x[self.booleans(*shape, share=0.15)] = -np.inf
        return x

    def documents(self):
        rows = []
        for _ in range(self.B):
            lengths = []
            while sum(lengths) < self.T_kv:
                lengths.append(min(self.draw.randint(1, 4), self.T_kv - sum(lengths)))
            rows.append(lengths)
        if self.chance(0.3):
            return {"lengths": rows if self.batched else rows[0]}
        if not self.batched and self.chance(0.5):
            return {"cu_seqlens": [sum(rows[0][:n]) for n in range(len(rows[0]) + 1)]}
        ids = [[n for n, length in enumerate(row) for _ in range(length)] for row in rows]
        if self.chance(0.3):
            ids = [[self.draw.choice([-1, 0, 1, 2, 2]) for _ in row] for row in ids]
        return {"ids": ids if self.batched else ids[0]}

    def score(self):
        out = {}
        if self.chance(0.3):
            out["scale"] = round(self.draw.uniform(0.05, 1.2), 3)
        if self.level > 1:
            if self.chance(0.2):
                out["temperature"] = round(self.draw.uniform(0.4, 3), 3)
            if self.chance(0.2):
                out["softcap"] = round(self.draw.uniform(0.5, 4), 3)
            if self.chance(0.2):
                out["function"] = "additive"
                out["v_a"] = self.tensor(self.numbers(self.d_k))
            elif self.chance(0.2):
                out["function"] = "dot_product"
        return out

    def extras(self, body):
        position = {}
        if self.rope:
            rope = {"layout": self.draw.choice(["half", "interleaved"])}
            if self.chance(0.6):
                rope["base"] = self.draw.choice([10000, 100, 37.5])
            for name, T in (("q", self.T_q), ("k", self.T_new)):
                if self.chance(0.4):
                    shape = (self.B, T) if self.batched and self.chance(0.4) else (T,)
                    flat = [self.draw.randint(0, 12) for _ in range(int(np.prod(shape)))]
                    rope[name] = np.array(flat).reshape(shape).tolist()
            position["rope"] = rope
        if self.chance(0.25):
            slopes = [round(self.draw.uniform(0.05, 1), 3) for _ in range(self.h)]
            position["alibi"] = {"slopes": "standard" if self.chance(0.5) else slopes}
        if position:
            body["position"] = position
        if self.chance(0.2):
            body["sink"] = self.numbers(self.h).tolist()
        if self.chance(0.3):
            body["encoding"] = self.draw.choice(["nested", "flat", "base64"])
        if self.chance(0.2):
            body["traces"] = [{"batch": self.draw.randrange(self.B),
                               "head": self.draw.randrange(self.h),
                               "query": self.draw.randrange(self.T_q)} for _ in range(2)]
        if self.chance(0.4):
            body["gradients"] = self.gradients("masks" not in body)

    def gradients(self, all_allowed):
        shapes = {"H": self.batch(self.T_q, self.h * self.d_v)}
        if self.has_output:
            shapes["Y"] = self.batch(self.T_q, self.d_model)
        head = (self.h,) if self.headed else ()
        shapes["H_heads"] = self.batch(*head, self.T_q, self.d_v)
        shapes["A"] = self.batch(*head, self.T_q, self.T_kv)
        if all_allowed:
            shapes["S"] = shapes["A"]
        of = self.draw.choice(sorted(shapes))
        if self.has_output and self.chance(0.5):
            of = "Y"
        out = {"of": of}
        if self.chance(0.8):
            out["cotangent"] = self.tensor(self.numbers(*shapes[of]))
        elif self.chance(0.5):
            out["cotangent"] = "ones"
        return out

    def empty_rows(self, body):
        rule = self.draw.choice(["zero", "nan", "uniform", "error", None])
        if rule is None:
            return
        empty = not np.all(np.any(read_problem(body).allowed, axis=3))
        taken_apart = "gradients" in body or "traces" in body
        if empty and (rule == "error" or (rule == "nan" and taken_apart)):
            rule = "uniform"
        body["empty_rows"] = rule

    def returned(self, body):
        choice = self.draw.choice(["default", "list", "list", "all", "none"])
        names = [n for n in NAMES_OF_ONE_HEAD if n != "Y" or self.has_output]
        if choice == "list" or (choice == "default" and not self.has_output):
            body["return"] = self.draw.sample(names, self.draw.randint(1, len(names)))
        elif choice != "default":
            body["return"] = choice
        if self.level > 1 and self.chance(0.4):
            body["path"] = self.path(body)

    def path(self, body):
        """tiled only where no tensor of T_q x T_kv is asked: the two contradict."""
        names = body.get("return", "default")
        pairwise = names in ("default", "all") or PAIRWISE & set(names)
        if pairwise or "gradients" in body or "traces" in body:
            return self.draw.choice(["auto", "dense"])
        return self.draw.choice(["auto", "tiled", "tiled"])

    def small_with_gradients(self):
        """A problem so small that central differences of every entry are cheap."""
        self.largest = 5
        while True:
            body = self.problem()
            if "gradients" in body and self.h <= 4 and body.get("empty_rows") != "nan":
                return dict(body, dtype="float64")
