"""Builds the libraries of `custom_ops/`: ``python -m tf_ext.ops.build``.

The operators are built for the installed TensorFlow; the other libraries know none, and ``--no-tensorflow`` builds those
alone. In a source checkout it compiles `custom_ops/` there, in an installed package the sources that the package carries,
and puts each library into its package. It needs a C++ compiler; CMake and Ninja come from ``pip install cmake ninja``
where the system has none. Only what changed is compiled again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence

from tf_ext.errors import OperatorLibraryError
from tf_ext.ops._installed import InstalledTensorFlow, find_tensorflow, minor
from tf_ext.ops._library import LIBRARY_NAME, LIBRARY_VARIABLE, read_stamp, require_tensorflow

__all__ = ["FREE_LIBRARIES", "build", "build_free", "main"]

FREE_LIBRARIES = {"_lite.so": "lite"}
"""Libraries that know no TensorFlow, and the package that each lies in."""

_OPS = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class _Tools:
    """The programs that a build runs."""

    cmake: str
    ninja: str | None
    compiler: str


def find_source() -> pathlib.Path:
    """Returns the folder with the CMakeLists.txt: the checkout, or the sources that the package carries.

    Raises:
        OperatorLibraryError: there is neither.
    """
    for folder in (_OPS.parent.parent, _OPS / "_source"):
        if (folder / "CMakeLists.txt").is_file() and (folder / "custom_ops").is_dir():
            return folder
    raise OperatorLibraryError(
        f"The operators' C++ sources were expected in {_OPS / '_source'} but are not there. "
        "Install tf_ext anew, in its checkout: pip install --force-reinstall --no-deps ."
    )


def _program(name: str) -> str | None:
    """Finds a program among this Python's scripts, which PATH need not hold, or on PATH."""
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _find_tools() -> _Tools:
    compiler = os.environ.get("CXX") or _program("g++") or _program("clang++") or _program("c++")
    missing = []
    if compiler is None:
        missing.append("a C++ compiler (apt-get install g++)")
    cmake, ninja = _program("cmake"), _program("ninja")
    if cmake is None:
        missing.append(f"CMake ({sys.executable} -m pip install cmake)")
    if ninja is None and _program("make") is None:
        missing.append(f"Ninja ({sys.executable} -m pip install ninja)")
    if missing or cmake is None or compiler is None:
        raise OperatorLibraryError(f"Building the operators needs {' and '.join(missing)}.")
    return _Tools(cmake, ninja, compiler)


def _run(command: Sequence[str], verbose: bool) -> None:
    """Runs one step of the build; shows its output if that is asked for, or if it fails."""
    done = subprocess.run(command, stdout=None if verbose else subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise OperatorLibraryError(
            f"The build stopped in: {' '.join(command)}\n{done.stdout or ''}"
            "The first error above says what stands against it; a fresh start is --clean."
        )


def _compile(folder: pathlib.Path, operators: bool, jobs: int | None, verbose: bool) -> None:
    """Configures and builds in `folder`."""
    source, tools = find_source(), _find_tools()
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"] if tools.ninja else ["-G", "Unix Makefiles"]
    configure = [
        tools.cmake,
        *("-S", str(source), "-B", str(folder)),
        *generator,
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_CXX_COMPILER={tools.compiler}",
        f"-DTF_EXT_OPS={'ON' if operators else 'OFF'}",
    ]
    _run(configure, verbose)
    _run([tools.cmake, "--build", str(folder), "--parallel", str(jobs or os.cpu_count() or 1)], verbose)


@contextlib.contextmanager
def _build_folder(name: str, clean: bool) -> Iterator[pathlib.Path]:
    """The folder to build in: kept in a checkout, for the next build; a passing one for an installed package."""
    source = find_source()
    if source == _OPS / "_source":
        with tempfile.TemporaryDirectory(prefix="tf_ext-build-") as scratch:
            yield pathlib.Path(scratch)
        return
    folder = source / "build" / f"{name}-{sysconfig.get_platform()}"
    if clean:
        shutil.rmtree(folder, ignore_errors=True)
    yield folder


def _put_free(folder: pathlib.Path) -> list[pathlib.Path]:
    """Puts the libraries that know no TensorFlow into their packages."""
    targets = []
    for name, package in FREE_LIBRARIES.items():
        (built,) = folder.glob(f"custom_ops/*/{name}")
        targets.append(_OPS.parent / package / name)
        _put(built, targets[-1])
    return targets


def _put(library: pathlib.Path, target: pathlib.Path) -> None:
    """Puts the library in place whole or not at all: a running process keeps the file it has mapped."""
    if target.is_file() and target.read_bytes() == library.read_bytes():
        return
    scratch: pathlib.Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", delete=False) as file:
            scratch = pathlib.Path(file.name)
        shutil.copyfile(library, scratch)
        scratch.chmod(0o755)
        scratch.replace(target)
    except OSError as error:
        raise OperatorLibraryError(
            f"The library was built as {library}, but cannot be put at {target}: {error}. Put it elsewhere with "
            f"--output FILE, and name that file in ${LIBRARY_VARIABLE}."
        ) from error
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)


def build(
    output: pathlib.Path | None = None, *, clean: bool = False, verbose: bool = False, jobs: int | None = None
) -> pathlib.Path:
    """Builds the operator library for the installed TensorFlow, and the libraries that know none; puts them in place.

    Args:
        output: where to put the operator library, and it alone; each library goes into its package if None.
        clean: whether to forget what earlier builds compiled.
        verbose: whether to show what CMake and the compiler say.
        jobs: how many files to compile at a time; the number of processors if None.

    Returns:
        The path of the operator library.

    Raises:
        OperatorLibraryError: TensorFlow, the sources or a tool is absent, or the build failed.
    """
    require_tensorflow("Building the operators")
    tensorflow = find_tensorflow()
    assert tensorflow is not None
    target = output or _OPS / LIBRARY_NAME
    with _build_folder(f"ops-{minor(tensorflow.version)}", clean) as folder:
        _compile(folder, operators=True, jobs=jobs, verbose=verbose)
        _put(folder / "custom_ops" / LIBRARY_NAME, target)
        if output is None:
            _put_free(folder)
    _check(target, tensorflow)
    return target


def build_free(*, clean: bool = False, verbose: bool = False, jobs: int | None = None) -> list[pathlib.Path]:
    """Builds the libraries that know no TensorFlow, and puts them in place.

    Args:
        clean: whether to forget what earlier builds compiled.
        verbose: whether to show what CMake and the compiler say.
        jobs: how many files to compile at a time; the number of processors if None.

    Returns:
        Their paths.

    Raises:
        OperatorLibraryError: the sources or a tool is absent, or the build failed.
    """
    with _build_folder("free", clean) as folder:
        _compile(folder, operators=False, jobs=jobs, verbose=verbose)
        return _put_free(folder)


def _check(library: pathlib.Path, tensorflow: InstalledTensorFlow) -> None:
    """A build folder configured for another TensorFlow would otherwise go unnoticed until the library is loaded."""
    stamp = read_stamp(library)
    if stamp != tensorflow.version:
        raise OperatorLibraryError(
            f"{library} was expected to be built for TensorFlow {tensorflow.version}, but says {stamp}. Build again "
            "with --clean."
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_ext.ops.build",
        description="Builds the operator library for the installed TensorFlow, and the libraries that know none.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--output", type=pathlib.Path, metavar="FILE", help="where to put the operator library")
    which.add_argument("--no-tensorflow", action="store_true", help="only the libraries that know no TensorFlow")
    parser.add_argument("--clean", action="store_true", help="compile everything anew")
    parser.add_argument("--verbose", action="store_true", help="show what CMake and the compiler say")
    parser.add_argument("--jobs", type=int, metavar="N", help="files to compile at a time")
    arguments = parser.parse_args(argv)
    how = {"clean": arguments.clean, "verbose": arguments.verbose, "jobs": arguments.jobs}
    try:
        if arguments.no_tensorflow:
            print("\n".join(f"{library} is built" for library in build_free(**how)))
            return 0
        library = build(arguments.output, **how)
    except OperatorLibraryError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{library} is built for TensorFlow {read_stamp(library)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
