"""Finds the installed TensorFlow and makes a repository of its headers and libraries."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

cc_library(
    name = "tensorflow",
    hdrs = glob(["include/**"]),
    srcs = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"],
    includes = ["include"],
    defines = ["_GLIBCXX_USE_CXX11_ABI=1", "EIGEN_MAX_ALIGN_BYTES=64"],
)

# The Python that has TensorFlow, for py_test.
py_runtime(
    name = "python",
    interpreter_path = "{python}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":python",
)

toolchain(
    name = "python_toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _impl(ctx):
    python = ctx.os.environ.get("TF_EXT_PYTHON")
    if not python:
        python = str(ctx.path(ctx.attr._root).dirname.get_child(".venv").get_child("bin").get_child("python"))
    found = ctx.execute([python, "-P", str(ctx.path(ctx.attr._finder))])
    text = found.stdout.strip()
    if found.return_code or not text or text == "null":
        fail(("%s was expected to be a Python with TensorFlow, but it has none: %s %s\n" % (python, text, found.stderr)) +
             "Make one with `make setup`, or name one: bazel build --repo_env=TF_EXT_PYTHON=/path/to/python ...")
    tensorflow = json.decode(text)

    ctx.symlink(tensorflow["root"] + "/include", "include")
    for library in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2"):
        ctx.symlink(tensorflow["root"] + "/" + library, library)
    ctx.file("version.bzl", "TENSORFLOW_VERSION = %r\n" % tensorflow["version"])
    ctx.file("BUILD", _BUILD.replace("{python}", python))

tf_configure = repository_rule(
    implementation = _impl,
    attrs = {
        "_finder": attr.label(default = "//tf_ext/ops:_installed.py", allow_single_file = True),
        "_root": attr.label(default = "//:WORKSPACE", allow_single_file = True),
    },
    environ = ["TF_EXT_PYTHON"],
    local = True,
)
