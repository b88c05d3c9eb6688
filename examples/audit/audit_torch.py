#!/usr/bin/python3
"""Audits PyTorch layers: nn.MultiheadAttention and one written by hand.

usage: audit_torch.py [--url URL] [--seed N] [--layer mha|own] [--dtype float64|float32|bfloat16]
                      [--break NAME]
Hooks collect the tensors; gradients come from autograd.  torch is needed by this script only.
Start reading at main(), then collect_mha() and OwnLayer.
"""
import argparse
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from report import ask, exit_code, show

BREAKS = {
    "scores_unscaled": "the scores are not divided by sqrt(d_k)",
    "heads_joined_by_view": "heads are joined without moving the head axis back",
    "mask_inverted": "true is read as forbidden",
    "dropout_in_eval": "dropout is left on",
}


def probe(url, seed):
    """Square self-attention with a causal rule, biases and gradients of Y."""
    wanted = {"seed": seed, "purpose": ["projections"], "masks": {"causal": True},
              "shapes": {"B": 2, "T": 5, "d_model": 12, "d_k": 4, "d_v": 4, "heads": 3}}
    problem = ask(url, "/v1/probe", wanted)["problem"]
    draw = torch.Generator().manual_seed(seed)
    shape = (2, 5, 12)
    cotangent = torch.randn(shape, generator=draw).mul(100).round().div(100).tolist()
    return dict(problem, gradients={"of": "Y", "cotangent": cotangent})


def given(value, dtype):
    return torch.tensor(value, dtype=torch.float64).to(dtype)


def load_mha(problem, dtype):
    """nn.Linear weights are (out,in), the three input projections are stacked."""
    w, heads = problem["weights"], problem["shapes"]["heads"]
    width = problem["shapes"]["d_model"]
    mha = nn.MultiheadAttention(width, heads, batch_first=True, dtype=dtype)
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.cat([given(w[n], dtype).T
                                            for n in ("W_Q", "W_K", "W_V")]))
        mha.in_proj_bias.copy_(torch.cat([given(w[n], dtype) for n in ("b_Q", "b_K", "b_V")]))
        mha.out_proj.weight.copy_(given(w["W_O"], dtype).T)
        mha.out_proj.bias.copy_(given(w["b_O"], dtype))
    return mha.eval()


def collect_mha(problem, dtype, broken):
    """Q K V from the packed projection, A and Y as the layer returns them, and gradients.

    H stays inside: the layer hands out_proj's weight to a function, no hook sees its input.
    """
    mha, heads = load_mha(problem, dtype), problem["shapes"]["heads"]
    X = given(problem["inputs"]["X"], dtype).requires_grad_()
    T = X.shape[1]
    forbidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    if broken == "mask_inverted":
        forbidden = ~forbidden
    if broken == "dropout_in_eval":
        mha.dropout = 0.5
        mha.train()
    seen = {}
    Y, A = mha(X, X, X, attn_mask=forbidden, average_attn_weights=False)
    packed = F.linear(X, mha.in_proj_weight, mha.in_proj_bias)
    for name, part in zip("QKV", packed.chunk(3, dim=-1)):
        seen[name] = part.unflatten(-1, (heads, -1)).transpose(1, 2)
    seen.update({"A": A, "allowed": (~forbidden).expand(A.shape), "Y": Y})
    Y.backward(given(problem["gradients"]["cotangent"], dtype))
    dW = mha.in_proj_weight.grad.chunk(3)
    db = mha.in_proj_bias.grad.chunk(3)
    seen.update({"dX": X.grad, "dW_O": mha.out_proj.weight.grad.T,
                 "db_O": mha.out_proj.bias.grad})
    for n, name in enumerate("QKV"):
        seen["dW_" + name], seen["db_" + name] = dW[n].T, db[n]
    return seen


class OwnLayer(nn.Module):
    """A layer as people write it; every step is a module of its own, so that hooks see it."""

    def __init__(self, problem, dtype, broken):
        super().__init__()
        w = problem["weights"]
        self.heads, self.broken = problem["shapes"]["heads"], broken
        for name in "QKVO":
            matrix = given(w["W_" + name], dtype)
            linear = nn.Linear(*matrix.shape, dtype=dtype)
            linear.weight = nn.Parameter(matrix.T.contiguous())
            linear.bias = nn.Parameter(given(w["b_" + name], dtype))
            setattr(self, name.lower() + "_proj", linear)
        self.score, self.softmax, self.join = nn.Identity(), nn.Softmax(dim=-1), nn.Identity()
        self.dropout = nn.Dropout(0.5).train(broken == "dropout_in_eval")

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, X):
        q, k, v = (self.split(p(X)) for p in (self.q_proj, self.k_proj, self.v_proj))
        scale = 1.0 if self.broken == "scores_unscaled" else 1 / math.sqrt(q.shape[-1])
        scores = self.score(q @ k.transpose(-1, -2) * scale)
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if self.broken == "mask_inverted":
            allowed = ~allowed
        self.allowed = allowed.expand(scores.shape)
        weights = self.dropout(self.softmax(scores.masked_fill(~allowed, float("-inf"))))
        heads = weights @ v
        if self.broken != "heads_joined_by_view":
            heads = heads.transpose(1, 2)
        return self.o_proj(self.join(heads.reshape(X.shape[0], X.shape[1], -1)))


def collect_own(problem, dtype, broken):
    layer = OwnLayer(problem, dtype, broken)
    seen = {}
    places = {"Q": layer.q_proj, "K": layer.k_proj, "V": layer.v_proj, "S": layer.score,
              "A": layer.dropout, "H": layer.join, "Y": layer.o_proj}

    def keep(name):
        def hook(_module, _inputs, output):
            seen[name] = layer.split(output) if name in "QKV" else output
        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in places.items()]
    X = given(problem["inputs"]["X"], dtype).requires_grad_()
    layer(X).backward(given(problem["gradients"]["cotangent"], dtype))
    for hook in hooks:
        hook.remove()
    seen.update({"allowed": layer.allowed, "dX": X.grad})
    for name in "QKVO":
        linear = getattr(layer, name.lower() + "_proj")
        seen["dW_" + name], seen["db_" + name] = linear.weight.grad.T, linear.bias.grad
    return seen


def plain(tensor):
    """Nested lists; what JSON lacks as words."""
    if tensor.dtype != torch.bool:
        tensor = tensor.detach().double()
        if not torch.isfinite(tensor).all():
            return words(tensor.tolist())
    return tensor.tolist()


def words(x):
    if isinstance(x, list):
        return [words(part) for part in x]
    if math.isnan(x):
        return "NaN"
    return x if math.isfinite(x) else ("Infinity" if x > 0 else "-Infinity")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layer", choices=("mha", "own"), default="mha")
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16"),
                        default="float64")
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    args = parser.parse_args()
    if args.layer == "mha" and args.broken not in (None, "mask_inverted", "dropout_in_eval"):
        parser.error("--break %s needs --layer own" % args.broken)
    problem = probe(args.url, args.seed)
    collect = collect_mha if args.layer == "mha" else collect_own
    seen = collect(problem, getattr(torch, args.dtype), args.broken)
    body = dict(problem, candidate={name: plain(x) for name, x in seen.items()},
                candidate_dtype=args.dtype)
    answer = ask(args.url, "/v1/audit", body)
    show(answer, "nn.MultiheadAttention" if args.layer == "mha" else "the layer by hand")
    return exit_code(answer)


if __name__ == "__main__":
    sys.exit(main())
