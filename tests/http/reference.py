"""The whole layer, slowly, in long double, written from the mathematics.

Not here: reading requests (reference_read.py), gradients (reference_grad.py), speed.
Start reading at forward(); answers() gives the tensors of a request in their shapes.
"""
import numpy as np

from reference_read import read_problem, to_pairs
from tensors import LD

NO_HEAD_AXIS = {"H", "Y"}
NAMES = ["Q", "K", "V", "S", "M", "A", "H", "Y", "S_raw", "S_masked", "allowed", "lse",
         "H_heads", "contributions", "present_K", "present_V", "Q_pre", "K_pre"]
DEFAULT = ["Q", "K", "V", "S", "M", "A", "H", "Y"]


def project(x, W, bias, heads):
    """x (B,T,d_model), W (d_model,h*d): (B,h,T,d), head i from its own columns."""
    B, T, _ = x.shape
    d = W.shape[1] // heads
    out = np.zeros((B, heads, T, d), LD)
    for b in range(B):
        for t in range(T):
            for i in range(heads):
                for c in range(d):
                    column = i * d + c
                    out[b, i, t, c] = np.sum(x[b, t] * W[:, column])
                    if bias is not None:
                        out[b, i, t, c] += bias[column]
    return out


def rotate(x, at, p, sign=1):
    """RoPE of x (B,h,T,d_k) at positions `at` (B,T); sign -1 turns back."""
    d = p.d_k
    out = np.zeros_like(x)
    for k in range(d // 2):
        first, second = (k, k + d // 2) if p.rope_layout == "half" else (2 * k, 2 * k + 1)
        theta = p.rope_base ** (-LD(2 * k) / d)
        cos = np.cos(at * theta)[:, None, :]
        sin = np.sin(at * theta)[:, None, :] * sign
        a, b = x[..., first], x[..., second]
        out[..., first] = a * cos - b * sin
        out[..., second] = a * sin + b * cos
    return out


def raw_scores(p, Q, K):
    """(B,h,T_q,T_kv): q.k, or v_a . tanh(q + k)."""
    out = np.zeros((p.B, p.h, p.T_q, p.T_kv), LD)
    for b in range(p.B):
        for h in range(p.h):
            for i in range(p.T_q):
                for j in range(p.T_kv):
                    q, k = Q[b, h, i], K[b, h // (p.h // p.g), j]
                    out[b, h, i, j] = np.sum(q * k) if p.function == "dot_product" \
                        else np.sum(p.params["v_a"] * np.tanh(q + k))
    return out


def mask(p):
    """M (B,h,T_q,T_kv): bias where allowed, -infinity where forbidden."""
    M = np.zeros((p.B, p.h, p.T_q, p.T_kv), LD)
    if "additive" in p.params:
        M = M + to_pairs(p.params["additive"])
    if p.slopes is not None:
        for h in range(p.h):
            for i in range(p.T_q):
                for j in range(p.T_kv):
                    M[:, h, i, j] -= p.slopes[h] * abs(i + p.offset - j)
    return np.where(p.allowed, M, -LD(np.inf))


def softmax(p, S, M):
    """A and lse: the log of each row's denominator, the sink included."""
    A = np.zeros_like(S)
    lse = np.full(S.shape[:3], -LD(np.inf))
    for b, h, i in np.ndindex(*S.shape[:3]):
        allowed = p.allowed[b, h, i]
        if not allowed.any():
            fill = {"zero": 0, "nan": np.nan, "uniform": LD(1) / p.T_kv}
            A[b, h, i] = fill[p.empty_rows]
            continue
        logits = (S + M)[b, h, i][allowed]
        sink = [p.params["sink"][h]] if "sink" in p.params else []
        top = max(list(logits) + sink)
        total = np.sum(np.exp(logits - top)) + sum(np.exp(x - top) for x in sink)
        A[b, h, i][allowed] = np.exp(logits - top) / total
        lse[b, h, i] = top + np.log(total)
    return A, lse


def forward(p, nudge=None):
    """Every tensor at full rank.  `nudge` adds to Q K V S A H_heads as they are made."""
    P, t, nudge = p.params, {}, nudge or {}
    if p.projected:
        q, k, v = P["Q"], P["K"], P["V"]
    else:
        source = P.get("X_kv", P["X"])
        q = project(P["X"], P["W_Q"], P.get("b_Q"), p.h)
        k = project(source, P["W_K"], P.get("b_K"), p.g)
        v = project(source, P["W_V"], P.get("b_V"), p.g)
    t["Q_pre"], k_pre = q, k
    if p.rope is not None:
        q, k = rotate(q, p.rope_q, p), rotate(k, p.rope_k, p)
    if p.T_past:
        k_pre = np.concatenate([P["past_K"], k_pre], axis=2)
        k = np.concatenate([P["past_K"], k], axis=2)
        v = np.concatenate([P["past_V"], v], axis=2)
    t["K_pre"] = k_pre
    for name, value in (("Q", q), ("K", k), ("V", v)):
        t[name] = value + nudge.get(name, 0)
    t["present_K"], t["present_V"] = t["K"], t["V"]
    t["S_raw"] = raw_scores(p, t["Q"], t["K"])
    S = t["S_raw"] * p.scale / p.temperature
    if p.softcap:
        S = p.softcap * np.tanh(S / p.softcap)
    t["S"] = S + nudge.get("S", 0)
    t["M"], t["allowed"] = mask(p), p.allowed
    t["S_masked"] = t["S"] + t["M"]
    A, t["lse"] = softmax(p, t["S"], t["M"])
    t["A"] = A + nudge.get("A", 0)
    mix(p, t, nudge)
    if "W_O" in P:
        t["Y"] = output(p, t["H"])
    return t


def mix(p, t, nudge):
    """contributions A_ij v_j, their sums H_heads, and H with the heads side by side."""
    shape = (p.B, p.h, p.T_q, p.T_kv, p.d_v)
    t["contributions"] = np.zeros(shape, LD)
    for b, h, i, j in np.ndindex(*shape[:4]):
        v = t["V"][b, h // (p.h // p.g), j]
        t["contributions"][b, h, i, j] = t["A"][b, h, i, j] * v
    t["H_heads"] = np.sum(t["contributions"], axis=3) + nudge.get("H_heads", 0)
    t["H"] = join_heads(t["H_heads"])


def join_heads(x):
    """(B,h,T,d) to (B,T,h*d)."""
    return np.concatenate([x[:, h] for h in range(x.shape[1])], axis=2)


def output(p, H):
    W, bias = p.params["W_O"], p.params.get("b_O", 0)
    Y = np.zeros((p.B, p.T_q, W.shape[1]), LD)
    for b, i, c in np.ndindex(*Y.shape):
        Y[b, i, c] = np.sum(H[b, i] * W[:, c])
    return Y + bias


def shaped(p, name, x):
    """The axes of an answer: heads when they were stated, batch when X had one."""
    if name not in NO_HEAD_AXIS and not p.headed:
        x = x[:, 0]
    return x if p.batched else x[0]


def wanted(body, tensors):
    names = body.get("return", DEFAULT)
    names = NAMES if names == "all" else [] if names == "none" else names
    return [n for n in names if n in tensors]


def answers(body):
    """The tensors the service must return for this request, and the problem."""
    p = read_problem(body)
    t = forward(p)
    return {n: shaped(p, n, t[n]) for n in wanted(body, t)}, p, t


def pairs(p):
    """cost.pairs of the answer."""
    dense = p.B * p.h * p.T_q * p.T_kv
    allowed = int(np.sum(p.allowed))
    return {"dense_per_sequence_per_head": p.T_q * p.T_kv, "dense_total": dense,
            "allowed_total": allowed, "allowed_fraction": allowed / dense}


def supervision(p):
    """(B,T) booleans: the label of a slot is the next token of its own document."""
    out = []
    for b, row in enumerate(p.ids):
        after = row[1:] + [None if p.next_id is None else p.next_id[b]]
        out.append([a != -1 and a == n for a, n in zip(row, after)])
    return np.array(out)


def trace(p, t, b, h, i):
    """One row taken apart, key by key; dh_ds is dh/ds_j = a_j (v_j - h)."""
    A, V, H = t["A"][b, h, i], t["V"][b, h // (p.h // p.g)], t["H_heads"][b, h, i]
    keys, so_far, entropy = [], np.zeros(p.d_v, LD), LD(0)
    for j in range(p.T_kv):
        if not p.allowed[b, h, i, j]:
            continue
        so_far = so_far + A[j] * V[j]
        entropy -= A[j] * np.log(A[j]) if A[j] > 0 else 0
        keys.append({"key": j, "score": t["S"][b, h, i, j], "mask": t["M"][b, h, i, j],
                     "weight": A[j], "value": V[j], "contribution": A[j] * V[j],
                     "running_sum": so_far, "dh_ds": A[j] * (V[j] - H)})
    if not keys:
        entropy = LD(np.nan)           # no distribution, no entropy
    return {"keys": keys, "entropy": entropy, "effective_keys": np.exp(entropy)}
