"""Runs several TFLite models on all processors of a device: one engine, or one delegate, for all of them.

A model is made ready once, ahead of time: it is analysed, cut into pieces, and the pieces are measured.

    bundle = tf_ext.lite.make_bundle("face_landmark.tflite", "face_landmark.tfxlite")

Then either an engine runs it,

    with tf_ext.lite.Engine() as engine:
        model = engine.add("face_landmark.tfxlite")
        outputs = engine.request(model, {"input_1": picture}, slo=0.03)

or an interpreter does, which shares the engine with all others of the process:

    delegate = tf_ext.lite.load_delegate("face_landmark.tfxlite")
    interpreter = tf.lite.Interpreter("face_landmark.tflite", experimental_delegates=[delegate])

Nothing here imports TensorFlow but `tf_ext.lite.converter`, for Keras models. Parts are imported on first use.

Source: Jeong et al., *Band: Coordinated Multi-DNN Inference on Heterogeneous Mobile Processors*, MobiSys 2022.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_ext.lite.analyzer import Analysis as Analysis
    from tf_ext.lite.analyzer import analyze as analyze
    from tf_ext.lite.analyzer import support_from_table as support_from_table
    from tf_ext.lite.bundle import Bundle as Bundle
    from tf_ext.lite.bundle import make_bundle as make_bundle
    from tf_ext.lite.converter import from_keras as from_keras
    from tf_ext.lite.cutter import SubModel as SubModel
    from tf_ext.lite.cutter import cut as cut
    from tf_ext.lite.delegate import load_delegate as load_delegate
    from tf_ext.lite.engine import Engine as Engine
    from tf_ext.lite.engine import Request as Request
    from tf_ext.lite.errors import LiteError as LiteError
    from tf_ext.lite.model import Model as Model
    from tf_ext.lite.plan import Plan as Plan
    from tf_ext.lite.prober import probe as probe
    from tf_ext.lite.profiler import Profile as Profile
    from tf_ext.lite.profiler import profile as profile
    from tf_ext.lite.simulator import simulate as simulate

# Where each public name lies.
_HOMES = {
    "Analysis": "analyzer",
    "Bundle": "bundle",
    "Engine": "engine",
    "LiteError": "errors",
    "Model": "model",
    "Plan": "plan",
    "Profile": "profiler",
    "Request": "engine",
    "SubModel": "cutter",
    "analyze": "analyzer",
    "cut": "cutter",
    "from_keras": "converter",
    "load_delegate": "delegate",
    "make_bundle": "bundle",
    "probe": "prober",
    "profile": "profiler",
    "simulate": "simulator",
    "support_from_table": "analyzer",
}
_MODULES = ("errors", "model_zoo", "phones", "simulator", "workloads")

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    """Imports a part on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"tf_ext.lite.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"tf_ext.lite.{name}")
    raise AttributeError(f"module 'tf_ext.lite' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
