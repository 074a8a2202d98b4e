"""Models that ``credibly export`` wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = ("credibly.workflows.prediction", "credibly.data.preparation")
ABOUT = {"labels": ["a", "b"], "loss": "bce", "feature_names": ["u", "v"]}


class Target(FolderAttack):
    """``predict_dataset(MODEL.onnx, TABLE)``; without its first byte "0", the metadata alone."""

    def seeds(self) -> Iterable[bytes]:
        yield b"0" + exported(json.dumps(ABOUT))
        yield b"1" + json.dumps(ABOUT).encode()
        yield b'1{"labels": [], "loss": 1, "preparation": {}, "reader": {"id_column": "u"}}'

    def read(self, data: bytes) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from credibly.workflows.prediction import predict_dataset

        content = data[1:]
        if data[:1] != b"0":
            content = exported(content.decode("utf-8", "replace"))
        table = self.folder / "rows.parquet"
        if not table.exists():
            pq.write_table(pa.table({"u": [1.0, 2.0], "v": [0.5, -1.0]}), table)
        shutil.rmtree(self.folder / "out", ignore_errors=True)  # it must be new
        predict_dataset(self.put("some.onnx", content), table, self.folder / "out")


def exported(about: str) -> bytes:
    """Return a small model of two features and two labels."""
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "weight")
    nodes = [
        helper.make_node("MatMul", ["inputs", "weight"], ["scores"]),
        helper.make_node("Sigmoid", ["scores"], ["probabilities"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 2])
        for name in ("inputs", "scores", "probabilities")
    ]
    graph = helper.make_graph(nodes, "model", values[:1], values[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, {"credibly": about})
    return model.SerializeToString()
