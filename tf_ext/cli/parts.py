"""The optional parts of the suite: what each is for, and how to get it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil

__all__ = ["PARTS", "Part"]


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that the suite uses where it is present.

    Attributes:
        name: by which `tf_ext.testing.require` and ``tf-ext doctor`` know it.
        purpose: what it is for, in a few words.
        install: the command that installs it.
        module: the Python module that tells its presence, if it is one.
        program: the program that tells its presence, if it is one.
    """

    name: str
    purpose: str
    install: str
    module: str | None = None
    program: str | None = None

    def present(self) -> bool:
        """Whether it is installed; imports and starts nothing."""
        if self.program is not None:
            return shutil.which(self.program) is not None
        if self.module is None:
            return os.path.exists("/proc/driver/nvidia/version")
        return importlib.util.find_spec(self.module) is not None


PARTS = (
    Part("compiler", "rebuilds the operators for another TensorFlow", "apt-get install g++", program="g++"),
    Part("cmake", "rebuilds the operators for another TensorFlow", "pip install cmake ninja", program="cmake"),
    Part("gpu", "runs bodies on an NVIDIA GPU", "an NVIDIA driver, then: pip install 'tensorflow[and-cuda]'"),
    Part("litert", "runs TFLite models", "pip install 'ai-edge-litert>=2.3,<2.4'", module="ai_edge_litert"),
    Part(
        "aarch64",
        "the library of tf_ext.lite for phones",
        "apt-get install g++-aarch64-linux-gnu",
        program="aarch64-linux-gnu-g++",
    ),
    Part("qemu", "tests of it", "apt-get install qemu-user", program="qemu-aarch64"),
    Part("java", "tests of its Java classes", "apt-get install default-jdk-headless", program="javac"),
    Part("torch", "a peer in the benchmarks", "pip install torch", module="torch"),
    Part("matplotlib", "figures of the benchmarks", "pip install matplotlib", module="matplotlib"),
    Part("hypothesis", "property-based tests", "pip install hypothesis", module="hypothesis"),
    Part("chromium", "tests of the TensorBoard plugin's page", "apt-get install chromium", program="chromium"),
    Part("bazel", "the second build", "apt-get install bazel-bootstrap", program="bazel"),
)
