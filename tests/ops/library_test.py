"""The operator library is found, checked and loaded, and every misfit is a sentence that says what to do."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import tf_ext
from tf_ext import ops
from tf_ext.errors import OperatorLibraryError
from tf_ext.ops import _library
from tf_ext.ops._installed import InstalledTensorFlow, find_tensorflow, minor


@pytest.fixture
def library() -> pathlib.Path:
    path = _library.find_library()
    assert path is not None, "build it first: python -m tf_ext.ops.build"
    return path


def _stamped(library: pathlib.Path, folder: pathlib.Path, version: bytes) -> pathlib.Path:
    """A copy of the library that says it was built for another version."""
    content = library.read_bytes()
    own = _library.read_stamp(library)
    assert own is not None
    assert len(own) == len(version)
    copy = folder / "other.so"
    copy.write_bytes(content.replace(own.encode(), version))
    return copy


def test_stamp_is_the_installed_minor_version(library):
    import tensorflow as tf

    stamp = _library.read_stamp(library)
    assert stamp is not None
    assert minor(stamp) == minor(tf.__version__)


def test_installed_tensorflow_is_the_one_that_python_imports():
    import tensorflow as tf

    found = find_tensorflow()
    assert found is not None
    assert found.version == tf.__version__
    assert found.root == pathlib.Path(tf.__file__).parent


def test_load_is_done_once_and_has_no_problem_to_report():
    assert ops.inspect().problem is None
    assert ops.load() is ops.load()


def test_another_minor_version_is_refused_before_loading(library, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_EXT_OPS_LIBRARY", str(_stamped(library, tmp_path, b"1.15.0")))
    state = ops.inspect()
    assert state.built_for == "1.15.0"
    with pytest.raises(OperatorLibraryError) as caught:
        _library._load(state)
    installed = find_tensorflow()
    assert installed is not None
    for part in ("built for TensorFlow 1.15", f"{installed.distribution} {installed.version}", ops.REPAIR):
        assert part in str(caught.value)
    assert f"'{installed.distribution}>=1.15,<1.16'" in str(caught.value)


def test_another_patch_version_is_accepted():
    tensorflow = InstalledTensorFlow(pathlib.Path("/"), "2.21.7", "tensorflow")
    assert _library._misfit(pathlib.Path(__file__), "2.21.0", tensorflow) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF but nobody's"])
def test_a_library_without_a_stamp_is_refused(content, tmp_path, monkeypatch):
    other = tmp_path / "_ops.so"
    other.write_bytes(content)
    monkeypatch.setenv("TF_EXT_OPS_LIBRARY", str(other))
    with pytest.raises(OperatorLibraryError, match="does not say for which TensorFlow") as caught:
        _library._load(ops.inspect())
    assert str(other) in str(caught.value)


def test_a_named_library_that_is_not_there_is_reported_by_its_path(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_EXT_OPS_LIBRARY", str(tmp_path / "gone.so"))
    problem = ops.inspect().problem
    assert problem is not None
    assert f"{tmp_path}/gone.so, named by $TF_EXT_OPS_LIBRARY, is not a file" in problem


def test_tensorflow_of_an_unknown_version_is_named(monkeypatch):
    monkeypatch.setattr(
        _library, "find_tensorflow", lambda: InstalledTensorFlow(pathlib.Path("/"), "2.9.1", "tensorflow")
    )
    with pytest.raises(
        OperatorLibraryError, match=r"tf_ext\.recursion works with TensorFlow 2\.20 and 2\.21, but tenso"
    ):
        ops.require_tensorflow("tf_ext.recursion")


def test_absent_tensorflow_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(_library, "find_tensorflow", lambda: None)
    with pytest.raises(OperatorLibraryError, match=r"pip install 'tensorflow-cpu>=2\.\d+,<2\.\d+'"):
        ops.require_tensorflow("tf_ext.recursion")
    assert "needs TensorFlow" in str(ops.inspect().problem)


# In processes of their own: what a library has registered stays registered.
_LOAD = """
import sys
import tensorflow as tf
from tf_ext import errors, ops
for library in sys.argv[1:]:
    tf.load_op_library(library)
try:
    ops.load()
except errors.OperatorLibraryError as error:
    print(error)
"""


def _load(*others: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Loads the operators in a new process that loads `others` first."""
    command = [sys.executable, "-c", _LOAD, *map(str, others)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_a_second_library_with_the_same_operators_is_refused(library, tmp_path):
    twin = shutil.copy(library, tmp_path / "twin.so")
    done = _load(twin)
    assert "already has TfExt" in done.stdout, done.stderr
    assert f"from {twin}. Only one" in done.stdout


def test_a_damaged_library_is_an_error_of_ours(tmp_path):
    damaged = tmp_path / "_ops.so"
    stamp = f'tf_ext build stamp: {{"tensorflow": "{ops.inspect().built_for}"}} end of stamp'
    damaged.write_bytes(b"\x7fELF" + stamp.encode())
    done = _load(TF_EXT_OPS_LIBRARY=str(damaged))
    assert f"{damaged} was built for TensorFlow" in done.stdout, done.stderr
    assert "was expected to load, but it did not" in done.stdout
    assert ops.REPAIR in done.stdout


def test_a_new_copy_of_the_module_may_load_the_same_library_again(library):
    code = (
        "from tf_ext.ops import _library as first\nimport importlib\nfirst.load()\n"
        "second = importlib.reload(first)\nassert second._module is None\nsecond.load()\nprint('loaded twice')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "loaded twice", done.stderr


def test_version_is_that_of_the_installed_distribution():
    import importlib.metadata

    try:
        installed = importlib.metadata.version("tf_ext")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tf_ext runs from a source tree that is not installed")
    assert tf_ext.__version__ == installed
