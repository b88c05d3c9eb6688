"""Tensors as the wire carries them: reading every form, writing every form, comparing.

Not here: what the numbers mean (reference.py).  Start reading at read().
"""
import base64

import numpy as np

LD = np.longdouble
WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
DTYPES = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bool": "?"}


class Unsupported(Exception):
    """A documented form that this reference does not compute."""


def shape_of(nested):
    """Sizes of nested lists, read along the first elements."""
    sizes = []
    while isinstance(nested, list):
        sizes.append(len(nested))
        nested = nested[0] if nested else None
    return tuple(sizes)


def flatten(nested, shape):
    """Leaves in row-major order; raises ValueError on a ragged list."""
    if not shape:
        if isinstance(nested, list):
            raise ValueError("deeper than its first element")
        return [nested]
    if not isinstance(nested, list) or len(nested) != shape[0]:
        raise ValueError("ragged: want %d elements" % shape[0])
    return [leaf for part in nested for leaf in flatten(part, shape[1:])]


def read(value):
    """A tensor in nested, flat or base64 form: a long double array, or a bool array."""
    if isinstance(value, dict) and "base64" in value:
        raw = base64.b64decode(value["base64"], validate=True)
        data = np.frombuffer(raw, DTYPES[value["dtype"]]).reshape(value["shape"])
        return data.copy() if value["dtype"] == "bool" else data.astype(LD)
    if isinstance(value, dict) and "data" in value:
        return leaves(value["data"], tuple(value["shape"]))
    if isinstance(value, dict):
        raise Unsupported("generated tensor")
    if not isinstance(value, list):
        return leaves([value], ())
    shape = shape_of(value)
    return leaves(flatten(value, shape), shape)


def leaves(flat, shape):
    if flat and all(isinstance(x, bool) for x in flat):
        return np.array(flat, bool).reshape(shape)
    numbers = [WORDS[x] if isinstance(x, str) else x for x in flat]
    return np.array(numbers, np.float64).astype(LD).reshape(shape)


def plain(array):
    """Nested lists with the words for what JSON lacks."""
    if array.ndim:
        return [plain(part) for part in array]
    if array.dtype == bool:
        return bool(array)
    x = float(array)
    if np.isnan(x):
        return "NaN"
    return x if np.isfinite(x) else ("Infinity" if x > 0 else "-Infinity")


def write(array, form, dtype="float64"):
    """One of the accepted forms: nested, flat, base64."""
    if form == "nested":
        return plain(array)
    if form == "flat":
        return {"shape": list(array.shape), "data": plain(array.reshape(-1))}
    kind = "bool" if array.dtype == bool else dtype
    raw = np.ascontiguousarray(array.astype(DTYPES[kind])).tobytes()
    return {"shape": list(array.shape), "dtype": kind,
            "base64": base64.b64encode(raw).decode()}


def same(got, want, rtol, atol):
    """Element by element, of two arrays; non-finite numbers are equal by kind."""
    if want.dtype == bool or got.dtype == bool:
        return (got.dtype == want.dtype) & (got == want)
    with np.errstate(invalid="ignore"):
        close = np.abs(got - want) <= atol + rtol * np.abs(want)
    finite = np.isfinite(got) & np.isfinite(want)
    alike = (np.isnan(got) & np.isnan(want)) | (got == want)
    return np.where(finite, close, alike)


def first_difference(got, want, rtol, atol, floor=False):
    """None, or a sentence with the first differing index and both numbers.

    floor: the bound is rtol * max(1, |want|) instead of atol + rtol * |want|.
    """
    if got.shape != want.shape:
        return "shape %s, want %s" % (list(got.shape), list(want.shape))
    if floor:
        scaled = np.where(np.isfinite(want), np.maximum(1, np.abs(want)), 1) \
            if want.dtype != bool else 1
        ok = same(got, want, 0, rtol * scaled)
    else:
        ok = same(got, want, rtol, atol)
    if np.all(ok):
        return None
    at = tuple(int(x) for x in np.argwhere(~np.atleast_1d(ok))[0])[:got.ndim]
    return "%s: got %r, want %r (%d of %d differ)" % (
        list(at), plain(got[at]), plain(want[at]), int(np.sum(~ok)), max(1, got.size))
