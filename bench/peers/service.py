"""The layer as a FastAPI service would offer it: `orjson_app` (orjson both ways, NumPy arrays
written by it) and `json_app` (json of the standard library, lists)."""

import json

import fastapi
import numpy as np
import orjson

orjson_app, json_app = fastapi.FastAPI(), fastapi.FastAPI()


def layer(request):
    x = np.array(request["inputs"]["X"], np.float32)
    w = {name: np.array(value, np.float32) for name, value in request["weights"].items()}
    q, k, v = x @ w["W_Q"], x @ w["W_K"], x @ w["W_V"]
    s = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    m = np.broadcast_to(np.where(np.tri(s.shape[-1], dtype=bool), np.float32(0),
                                 np.float32(-np.inf)), s.shape)
    e = np.exp(s + m - (s + m).max(-1, keepdims=True))
    a = e / e.sum(-1, keepdims=True)
    h = a @ v
    return {"Q": q, "K": k, "V": v, "S": s, "M": np.ascontiguousarray(m), "A": a, "H": h,
            "Y": h @ w["W_O"]}


@orjson_app.post("/v1/attention")
async def with_orjson(request: fastapi.Request):
    tensors = layer(orjson.loads(await request.body()))
    return fastapi.Response(orjson.dumps({"tensors": tensors}, option=orjson.OPT_SERIALIZE_NUMPY),
                            media_type="application/json")


@json_app.post("/v1/attention")
async def with_json(request: fastapi.Request):
    tensors = layer(json.loads(await request.body()))
    lists = {name: tensor.tolist() for name, tensor in tensors.items()}
    return fastapi.Response(json.dumps({"tensors": lists}), media_type="application/json")
