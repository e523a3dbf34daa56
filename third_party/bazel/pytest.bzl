"""pytest files as Bazel tests."""

def pytest_test(name, src, data = [], deps = [], env = {}, **kwargs):
    """A test that runs one pytest file with the Python that has TensorFlow.

    Args:
      name: the target's name.
      src: the file, whose name ends in _test.py.
      data: files that it reads when it runs.
      deps: Python libraries that it imports.
      env: environment variables; $(rootpath) of a target in data is expanded.
      **kwargs: passed to py_test.
    """
    native.py_test(
        name = name,
        srcs = ["//third_party/bazel:run_pytest.py", src],
        main = "//third_party/bazel:run_pytest.py",
        args = ["$(rootpath %s)" % src],
        data = data + [src],
        deps = deps,
        env = env,
        **kwargs
    )
