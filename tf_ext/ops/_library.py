"""The operator library: where it lies, what it was built for, whether it fits, and loading it once."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import mmap
import os
import pathlib
import threading
import types
from typing import Any

from tf_ext.errors import OperatorLibraryError
from tf_ext.ops._installed import InstalledTensorFlow, find_tensorflow, minor

LIBRARY_NAME = "_ops.so"
LIBRARY_VARIABLE = "TF_EXT_OPS_LIBRARY"
REPAIR = "python -m tf_ext.ops.build"
# All operators of the suite begin with it, so it tells ours in TensorFlow's registry.
OPERATOR_PREFIX = "TfExt"
SUPPORTED = ("2.20", "2.21")

_STAMP_BEGIN = b"tf_ext build stamp: "
_STAMP_END = b" end of stamp"

_lock = threading.Lock()
_module: types.ModuleType | None = None


@dataclasses.dataclass(frozen=True)
class LibraryState:
    """What is known about the operator library without loading it.

    Attributes:
        path: where it lies, or None if there is none.
        built_for: the TensorFlow version that it was built for, or None if it carries no stamp.
        tensorflow: the installed TensorFlow, or None.
        problem: why it cannot be loaded and what to do, or None if nothing stands against it.
    """

    path: pathlib.Path | None
    built_for: str | None
    tensorflow: InstalledTensorFlow | None
    problem: str | None


def find_library() -> pathlib.Path | None:
    """Returns the path of the operator library, or None.

    ``$TF_EXT_OPS_LIBRARY`` comes first; then the file beside this one; then the package's resources, since an editable
    install keeps the library in site-packages while the Python files lie in the source tree.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return pathlib.Path(named)
    beside = pathlib.Path(__file__).with_name(LIBRARY_NAME)
    if beside.is_file():
        return beside
    resource = importlib.resources.files("tf_ext.ops").joinpath(LIBRARY_NAME)
    return pathlib.Path(str(resource)) if resource.is_file() else None


def read_stamp(library: pathlib.Path) -> str | None:
    """Returns the TensorFlow version that `library` says it was built for, or None if it says nothing.

    The text is searched in the file, because loading a library built for another version is what must not happen.
    """
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            begin = content.find(_STAMP_BEGIN)
            end = content.find(_STAMP_END, begin)
            if begin < 0 or end < 0:
                return None
            stamp: Any = json.loads(content[begin + len(_STAMP_BEGIN) : end])
    except ValueError:  # an empty file cannot be mapped
        return None
    version = stamp.get("tensorflow")
    return version if isinstance(version, str) else None


def _no_tensorflow(needed_by: str, wanted: str) -> str:
    pin = f">={wanted},<{_following(wanted)}"
    return (
        f"{needed_by} needs TensorFlow {wanted}, but this Python has none. "
        f"Install it: pip install 'tensorflow-cpu{pin}' (or 'tensorflow[and-cuda]{pin}' for GPUs)."
    )


def _following(version: str) -> str:
    major, _, middle = version.partition(".")
    return f"{major}.{int(middle) + 1}"


def _misfit(path: pathlib.Path | None, built_for: str | None, tensorflow: InstalledTensorFlow | None) -> str | None:
    """The sentence that says why the library cannot be loaded, or None."""
    if tensorflow is None:
        return _no_tensorflow("tf_ext.ops", minor(built_for or SUPPORTED[-1]))
    installed = f"{tensorflow.distribution} {tensorflow.version}"
    if path is None or not path.is_file():
        where = f"{path}, named by ${LIBRARY_VARIABLE}, is not a file" if path else f"{LIBRARY_NAME} is not installed"
        return f"The library of tf_ext's operators is absent: {where}. Build it for the {installed} you have: {REPAIR}"
    if built_for is None:
        return (
            f"{path} was expected to be tf_ext's operator library, but it does not say for which TensorFlow it was "
            f"built: it is damaged or another file. Build it for the {installed} you have: {REPAIR}"
        )
    if minor(built_for) != minor(tensorflow.version):
        wanted = minor(built_for)
        return (
            f"{path} was built for TensorFlow {wanted}, but {installed} is installed, and operators fit one minor "
            f"version only. Build them for the TensorFlow you have ({REPAIR}), or install the one they were built for "
            f"(pip install '{tensorflow.distribution}>={wanted},<{_following(wanted)}')."
        )
    return None


def inspect() -> LibraryState:
    """Returns what can be known about the library without loading it; imports no TensorFlow and raises nothing."""
    path = find_library()
    built_for = read_stamp(path) if path is not None and path.is_file() else None
    tensorflow = find_tensorflow()
    return LibraryState(path, built_for, tensorflow, _misfit(path, built_for, tensorflow))


def require_tensorflow(needed_by: str) -> None:
    """Checks that TensorFlow is installed; to be called by a package before it imports TensorFlow.

    Args:
        needed_by: who needs it, for the message, such as ``"tf_ext.recursion"``.

    Raises:
        OperatorLibraryError: there is none, or it is of a minor version that the suite was not written for.
    """
    tensorflow = find_tensorflow()
    if tensorflow is None:
        raise OperatorLibraryError(_no_tensorflow(needed_by, SUPPORTED[-1]))
    if minor(tensorflow.version) not in SUPPORTED:
        raise OperatorLibraryError(
            f"{needed_by} works with TensorFlow {' and '.join(SUPPORTED)}, but {tensorflow.distribution} "
            f"{tensorflow.version} is installed. Install one of these: pip install "
            f"'{tensorflow.distribution}>={SUPPORTED[-1]},<{_following(SUPPORTED[-1])}'"
        )


def load() -> types.ModuleType:
    """Returns the module with the operators' generated wrappers; checks and loads the library at the first call.

    Thread-safe. Imports TensorFlow.

    Raises:
        OperatorLibraryError: TensorFlow or the library is absent, they do not fit, or another library in this process
            has registered the same operators.
    """
    global _module
    with _lock:
        if _module is None:
            _module = _load(inspect())
        return _module


def _load(state: LibraryState) -> types.ModuleType:
    if state.problem is not None or state.path is None:
        raise OperatorLibraryError(state.problem)
    import tensorflow as tf

    _refuse_twin(state.path)
    try:
        module: types.ModuleType = tf.load_op_library(str(state.path))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise OperatorLibraryError(
            f"{state.path} was built for TensorFlow {state.built_for} and {tf.__version__} is installed, so it was "
            f"expected to load, but it did not: {error}. Build it anew: {REPAIR}"
        ) from error
    return module


def _refuse_twin(library: pathlib.Path) -> None:
    """Raises if another library has registered the suite's operators.

    TensorFlow keeps the first registration of a name and drops later ones without a word: calls would then run the
    other library's kernels, or fail for lack of wrappers.
    """
    names = _registered_operators()
    if not names:
        return
    mapped = _mapped_libraries()
    if library.resolve() in mapped:  # ours, loaded by an earlier copy of this module
        return
    others = [str(path) for path in sorted(mapped) if path.is_file() and read_stamp(path) is not None]
    raise OperatorLibraryError(
        f"{library} was about to register tf_ext's operators, but this process already has {', '.join(names)} from "
        f"{' and '.join(others) or 'another library'}. Only one of the two can be used: uninstall the other copy of "
        f"tf_ext, or name the library to use in ${LIBRARY_VARIABLE}."
    )


def _registered_operators() -> list[str]:
    """The suite's operators that TensorFlow already knows."""
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    listing = op_def_pb2.OpList()
    listing.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return sorted(op.name for op in listing.op if op.name.startswith(OPERATOR_PREFIX))


def _mapped_libraries() -> set[pathlib.Path]:
    """The shared libraries in this process, TensorFlow's own aside."""
    import tensorflow as tf

    own = pathlib.Path(tf.__file__).parent
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    paths = {pathlib.Path(line.split(maxsplit=5)[5]) for line in lines if line.endswith(".so")}
    return {path for path in paths if own not in path.parents}
