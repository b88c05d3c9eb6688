"""Attention by onnxruntime: answers each line "T causal threads path" with milliseconds.
`path` names the operator: MultiHeadAttention (the fused contrib operator) or Attention (ONNX 23)."""

import functools
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

HEADS, WIDTH = 8, 64


def model(operator, T, causal):
    shape = [1, T, HEADS * WIDTH]
    if operator == "Attention":
        node = helper.make_node("Attention", ["Q", "K", "V"], ["H"], q_num_heads=HEADS,
                                kv_num_heads=HEADS, is_causal=int(causal))
    else:
        node = helper.make_node("MultiHeadAttention", ["Q", "K", "V"], ["H"], domain="com.microsoft",
                                num_heads=HEADS, unidirectional=int(causal))
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "attention", [value("Q"), value("K"), value("V")],
                              [value("H")])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])


@functools.cache
def prepared(operator, T, causal, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model(operator, T, causal).SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(T)
    feed = {name: rng.standard_normal((1, T, HEADS * WIDTH)).astype(np.float32) for name in "QKV"}
    return session, feed


def main():
    for line in sys.stdin:
        T, causal, threads, operator = line.split()
        session, feed = prepared(operator, int(T), causal == "1", int(threads))
        session.run(None, feed)
        begin = time.perf_counter()
        session.run(None, feed)
        print(1000 * (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
    else:
        main()
