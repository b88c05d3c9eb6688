"""Ablations of the reference layer: a changed problem is run again, nothing cleverer.

Not here: the layer (reference.py).  Start reading at ablated(); CLAIMS is what
mathematics says must not move.
"""
import copy

import numpy as np

from reference import forward
from reference_read import read_problem
from tensors import LD, plain, read

# target: objects that stay bit for bit the same
CLAIMS = {"W_Q": {"K", "V", "M"}, "W_K": {"Q", "V", "M"},
          "W_V": {"Q", "K", "S", "M", "A"},
          "W_O": {"Q", "K", "V", "S", "M", "A", "H"}}

MATRIX_CHANGES = {
    "zero": lambda W, edit: np.zeros_like(W),
    "negate": lambda W, edit: -W,
    "scale": lambda W, edit: W * LD(edit["by"]),
    "replace": lambda W, edit: read(edit["with"]),
}


def ablated(body, edit):
    """Every tensor of the layer with one change."""
    target, change = edit["target"], edit["change"]
    if target == "head":
        return without_head(body, edit["index"])
    other = copy.deepcopy(body)
    if target in CLAIMS:
        W = read(body["weights"][target])
        other["weights"][target] = plain(MATRIX_CHANGES[change](W, edit))
    elif target.startswith("masks."):
        del other["masks"][target[len("masks."):]]
    p = read_problem(other)
    if target == "scale":
        p.scale = p.scale * LD(edit["by"])
    if target == "edge":
        p.allowed = p.allowed.copy()
        p.allowed[:, :, edit["query"], edit["key"]] = False
    return forward(p)


def without_head(body, h):
    """The head's output is 0; what comes before it stays."""
    p = read_problem(body)
    nudge = np.zeros((p.B, p.h, p.T_q, p.d_v), LD)
    nudge[:, h] = -forward(p)["H_heads"][:, h]
    return forward(p, {"H_heads": nudge})
