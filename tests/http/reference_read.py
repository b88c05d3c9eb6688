"""Reads the body of POST /v1/attention into one plain Problem, in long double.

Not here: the layer itself (reference.py).  Start reading at read_problem().
"""
import numpy as np

from tensors import LD, Unsupported, read

PARAMETERS = ["W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"]
MATRICES = PARAMETERS[:4]


class Problem:
    """Sizes B h g T_q T_new T_past T_kv d_k d_v (g key/value heads), rules and `params`.

    params holds what has a gradient or is perturbed: X X_kv Q K V past_K past_V,
    matrices as (in,out) whatever the convention, biases, additive, sink, v_a.
    """

    def replace(self, name, value):
        """A copy with one parameter changed; the mask rules stay."""
        other = Problem()
        other.__dict__.update(self.__dict__)
        other.params = dict(self.params)
        other.params[name] = value
        return other


def split_heads(x, heads):
    """(B,T,h*d) to (B,h,T,d): head i owns columns i*d ... (i+1)*d-1."""
    B, T, width = x.shape
    d = width // heads
    out = np.zeros((B, heads, T, d), LD)
    for i in range(heads):
        out[:, i] = x[:, :, i * d:(i + 1) * d]
    return out


def with_batch(x, batched):
    return x if batched else x[None]


def read_problem(body):
    p = Problem()
    shapes = body.get("shapes", {})
    p.dtype = body.get("dtype", "float64")
    p.headed = "heads" in shapes
    p.h = shapes.get("heads", 1)
    p.g = shapes.get("kv_heads", p.h)
    p.params = {}
    p.cast = (lambda a: a.astype(np.float32).astype(LD)) if p.dtype == "float32" \
        else (lambda a: a)
    read_inputs(p, body["inputs"])
    read_weights(p, body.get("weights") or {})
    read_sizes(p)
    read_score(p, body.get("score", {}))
    read_position(p, body.get("position", {}), body.get("masks", {}))
    if "sink" in body:
        p.params["sink"] = p.cast(read(body["sink"]))
    p.empty_rows = body.get("empty_rows", "zero")
    read_masks(p, body.get("masks", {}))
    p.gradients = body.get("gradients")
    return p


def read_inputs(p, inputs):
    P = p.params
    p.self_attention = "X" in inputs and "X_kv" not in inputs
    p.projected = "Q" in inputs
    first = read(inputs["Q" if p.projected else "X"])
    p.batched = first.ndim > 2
    for name in ("X", "X_kv", "Q", "K", "V"):
        if name not in inputs:
            continue
        x = with_batch(p.cast(read(inputs[name])), p.batched)
        if name in "QKV" and x.ndim == 3:
            x = split_heads(x, p.h if name == "Q" else p.g)
        P[name] = x
    if "past" in inputs:
        P["past_K"] = p.cast(read(inputs["past"]["K"]))
        P["past_V"] = p.cast(read(inputs["past"]["V"]))


def read_weights(p, weights):
    p.linear = weights.get("convention") == "torch_linear"
    for name in PARAMETERS:
        if weights.get(name) is None:
            continue
        w = p.cast(read(weights[name]))
        p.params[name] = w.T if p.linear and name in MATRICES else w


def read_sizes(p):
    P = p.params
    if p.projected:
        p.B, _, p.T_q, p.d_k = P["Q"].shape
        p.T_new, p.d_v = P["V"].shape[2:]
    else:
        p.B, p.T_q, p.d_model = P["X"].shape
        p.T_new = P.get("X_kv", P["X"]).shape[1]
        p.d_k = P["W_Q"].shape[1] // p.h
        p.d_v = P["W_V"].shape[1] // p.g
    p.T_past = P["past_K"].shape[2] if "past_K" in P else 0
    p.T_kv = p.T_past + p.T_new


def read_score(p, score):
    p.function = score.get("function", "dot_product")
    default = 1 / np.sqrt(LD(p.d_k)) if p.function == "dot_product" else LD(1)
    scale = score.get("scale")
    p.scale = default if scale is None else LD(scale)
    p.temperature = LD(score.get("temperature", 1))
    p.softcap = LD(score.get("softcap") or 0)
    if "v_a" in score:
        p.params["v_a"] = p.cast(read(score["v_a"]))


def alignment_of(masks):
    """top_left, bottom_right, or None where there is no rule or it does not matter."""
    causal = masks.get("causal")
    return causal.get("alignment") if isinstance(causal, dict) else None


def read_position(p, position, masks):
    p.rope = position.get("rope")
    if p.rope is not None:
        p.rope_base = LD(p.rope.get("base", 10000))
        p.rope_layout = p.rope["layout"]
        p.rope_q = positions(p.rope.get("q"), p.B, p.T_kv - p.T_q, p.T_q)
        p.rope_k = positions(p.rope.get("k"), p.B, p.T_past, p.T_new)
    slopes = position.get("alibi", {}).get("slopes")
    p.slopes = standard_slopes(p.h) if slopes == "standard" else \
        None if slopes is None else read(slopes)
    p.offset = p.T_past if alignment_of(masks) == "top_left" else p.T_kv - p.T_q


def positions(given, B, start, count):
    if given is None:
        return np.array([[LD(start + t) for t in range(count)]] * B)
    x = read(given)
    return np.array([x] * B) if x.ndim == 1 else x


def standard_slopes(h):
    """Press et al. 2022: geometric for a power of two, else filled from twice that."""
    n = 1
    while 2 * n <= h:
        n *= 2
    slopes = [LD(2) ** (-LD(8) * m / n) for m in range(1, n + 1)]
    double = [LD(2) ** (-LD(8) * m / (2 * n)) for m in range(1, 2 * n + 1)]
    return np.array(slopes + double[0::2][:h - n])


def document_ids(rule, p):
    """(B,T) integers, whichever way the documents were given."""
    if "ids" in rule:
        ids = rule["ids"]
        return [ids] if not isinstance(ids[0], list) else ids
    if "lengths" in rule:
        rows = rule["lengths"]
        rows = [rows] if not isinstance(rows[0], list) else rows
        return [[n for n, length in enumerate(row) for _ in range(length)]
                for row in rows]
    cu = rule["cu_seqlens"]
    return [[n for n in range(len(cu) - 1) for _ in range(cu[n + 1] - cu[n])]] * p.B


def valid_keys(rule, p):
    """(B,T_kv) booleans from lengths or from the list itself."""
    if "valid" in rule:
        return with_batch(read(rule["valid"]), read(rule["valid"]).ndim == 2)
    return np.array([[j < n for j in range(p.T_kv)] for n in rule["lengths"]])


def to_pairs(x):
    """(T_q,T_kv), (B,T_q,T_kv) or (B,h,T_q,T_kv), ready to broadcast over the last."""
    return x[None, None] if x.ndim == 2 else x[:, None] if x.ndim == 3 else x


def read_masks(p, masks):
    if "convention" in masks:
        raise Unsupported("convention")
    shape = (p.B, p.h, p.T_q, p.T_kv)
    p.allowed = np.ones(shape, bool)
    p.ids = document_ids(masks["documents"], p) if "documents" in masks else None
    p.next_id = masks.get("documents", {}).get("next_id")
    valid = valid_keys(masks["padding"], p) if "padding" in masks else None
    window = masks.get("window", {})
    left, right = window.get("left", -1), window.get("right", -1)
    causal = masks.get("causal") not in (None, False)
    for b in range(p.B):
        for i in range(p.T_q):
            for j in range(p.T_kv):
                here = i + p.offset
                ok = (not causal or j <= here) \
                    and (left < 0 or j >= here - left) \
                    and (right < 0 or j <= here + right) \
                    and (valid is None or bool(valid[b, j])) \
                    and (p.ids is None or same_document(p, b, i, j))
                p.allowed[b, :, i, j] = ok
    if "allowed" in masks:
        p.allowed &= np.broadcast_to(to_pairs(read(masks["allowed"])), shape)
    if "blocked" in masks:
        p.allowed &= ~np.broadcast_to(to_pairs(read(masks["blocked"])), shape)
    if "additive" in masks:
        bias = p.cast(read(masks["additive"]))
        p.allowed &= np.broadcast_to(to_pairs(bias), shape) != -np.inf
        p.params["additive"] = np.where(bias == -np.inf, LD(0), bias)


def same_document(p, b, i, j):
    mine = p.ids[b][p.T_kv - p.T_q + i]
    return mine != -1 and p.ids[b][j] == mine
