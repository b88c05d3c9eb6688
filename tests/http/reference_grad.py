"""Gradients of the reference layer, analytic, in long double, and their own proof.

Not here: the forward pass (reference.py).  Start reading at gradients(); central() is the
independent check of it by differences of the forward pass alone.
"""
import numpy as np

from reference import forward, join_heads, rotate, shaped
from reference_read import split_heads
from tensors import LD, read


def cotangent(p, t):
    """The given cotangent at full rank, and the name of what it belongs to."""
    of = p.gradients.get("of", "Y")
    given = p.gradients.get("cotangent", "ones")
    if given == "ones":
        return of, np.ones_like(t[of])
    return of, p.cast(read(given)).reshape(t[of].shape)


def gradients(p, t):
    """Every gradient by its wire name, shaped like the tensor it belongs to."""
    P, g = p.params, {}
    of, C = cotangent(p, t)
    zero = {name: np.zeros_like(t[name]) for name in ("H_heads", "A", "S", "Q", "K", "V")}
    d = dict(zero)
    if of == "Y":
        g["dW_O"] = np.einsum("btr,btc->rc", t["H"], C)
        if "b_O" in P:
            g["db_O"] = np.sum(C, axis=(0, 1))
        d["H_heads"] = split_heads(np.einsum("btc,rc->btr", C, P["W_O"]), p.h)
    elif of == "H":
        d["H_heads"] = split_heads(C, p.h)
    elif of == "H_heads":
        d["H_heads"] = C
    if of in ("Y", "H", "H_heads"):
        g["dH"] = shaped(p, "H", join_heads(d["H_heads"]))
        values_backward(p, t, d)
    if of == "A":
        d["A"] = C
    if of != "S":
        g["dA"] = shaped(p, "A", d["A"])
        softmax_backward(p, t, d, g)
    else:
        d["S"] = C
    scores_backward(p, t, d, g)
    for name in "SQKV":
        g["d" + name] = shaped(p, name, d[name])
    if not p.projected:
        inputs_backward(p, d, g)
    if p.linear:
        for name in ("dW_Q", "dW_K", "dW_V", "dW_O"):
            if name in g:
                g[name] = g[name].T
    return g


def values_backward(p, t, d):
    """H = A V: dA_ij = dH_i . v_j at every pair, dV_j = sum_i A_ij dH_i."""
    for b, h, i, j in np.ndindex(*t["A"].shape):
        kv = h // (p.h // p.g)
        d["A"][b, h, i, j] = np.sum(d["H_heads"][b, h, i] * t["V"][b, kv, j])
        d["V"][b, kv, j] += t["A"][b, h, i, j] * d["H_heads"][b, h, i]


def softmax_backward(p, t, d, g):
    """dS_j = A_j (dA_j - sum_k A_k dA_k); exactly 0 where forbidden and in empty rows."""
    sink_share = np.zeros(t["lse"].shape, LD)
    if "sink" in p.params:
        g["dsink"] = np.zeros(p.h, LD)
    for b, h, i in np.ndindex(*t["lse"].shape):
        allowed = p.allowed[b, h, i]
        if not allowed.any():
            continue
        A, dA = t["A"][b, h, i], d["A"][b, h, i]
        mean = np.sum(A[allowed] * dA[allowed])
        d["S"][b, h, i][allowed] = A[allowed] * (dA[allowed] - mean)
        if "sink" in p.params:
            sink_share = np.exp(p.params["sink"][h] - t["lse"][b, h, i])
            g["dsink"][h] -= sink_share * mean
    if "additive" in p.params:
        shape = p.params["additive"].shape
        axes = {2: (0, 1), 3: (1,), 4: ()}[len(shape)]
        g["d_additive"] = np.sum(d["S"], axis=axes).reshape(shape)


def scores_backward(p, t, d, g):
    """Through softcap, temperature and scale to q and k."""
    factor = p.scale / p.temperature * np.ones_like(t["S"])
    if p.softcap:
        factor = factor * (1 - (t["S"] / p.softcap) ** 2)
    raw = d["S"] * factor
    if p.function == "additive":
        g["dv_a"] = np.zeros(p.d_k, LD)
    for b, h, i, j in np.ndindex(*raw.shape):
        kv = h // (p.h // p.g)
        q, k, ds = t["Q"][b, h, i], t["K"][b, kv, j], raw[b, h, i, j]
        if p.function == "dot_product":
            d["Q"][b, h, i] += ds * k
            d["K"][b, kv, j] += ds * q
        else:
            bent = np.tanh(q + k)
            slope = ds * p.params["v_a"] * (1 - bent * bent)
            d["Q"][b, h, i] += slope
            d["K"][b, kv, j] += slope
            g["dv_a"] += ds * bent


def inputs_backward(p, d, g):
    """Back through RoPE and the projections; cached rows end at dK and dV."""
    P = p.params
    dq, dk, dv = d["Q"], d["K"][:, :, p.T_past:], d["V"][:, :, p.T_past:]
    if p.rope is not None:
        dq, dk = rotate(dq, p.rope_q, p, -1), rotate(dk, p.rope_k, p, -1)
    source = "X_kv" if "X_kv" in P else "X"
    flows = {"Q": ("X", dq), "K": (source, dk), "V": (source, dv)}
    total = {name: np.zeros_like(P[name]) for name in {"X", source}}
    for name, (origin, dx) in flows.items():
        flat = join_heads(dx)
        g["dW_" + name] = np.einsum("btr,btc->rc", P[origin], flat)
        if "b_" + name in P:
            g["db_" + name] = np.sum(flat, axis=(0, 1))
        total[origin] += np.einsum("btc,rc->btr", flat, P["W_" + name])
    for name, value in total.items():
        g["d" + name] = value if p.batched else value[0]


def objective(p, of, C, nudge=None):
    return np.sum(C * forward(p, nudge)[of])


def central(p, name, step=LD(1e-5)):
    """d(objective)/d(name) by central differences; no line shared with gradients()."""
    t = forward(p)
    of, C = cotangent(p, t)
    target = name[2:] if name == "d_additive" else name[1:]
    made = "H_heads" if target == "H" else target
    nudged = made in ("Q", "K", "V", "S", "A", "H_heads")
    base = np.zeros_like(t[made]) if nudged else p.params[target]
    out = np.zeros_like(base)
    for at in np.ndindex(*base.shape):
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[at] += sign * step
            sides.append(objective(p, of, C, {made: moved}) if nudged
                         else objective(p.replace(target, moved), of, C))
        out[at] = (sides[0] - sides[1]) / (2 * step)
    if target == "H":
        return shaped(p, "H", join_heads(out))
    if nudged:
        return shaped(p, target, out)
    if p.linear and target in ("W_Q", "W_K", "W_V", "W_O"):
        return out.T
    return out[0] if target in ("X", "X_kv") and not p.batched else out
