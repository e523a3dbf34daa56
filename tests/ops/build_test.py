"""`python -m tf_ext.ops.build`: it names what is missing, and puts the library in place whole or not at all."""

import os
import pathlib
import shutil

import pytest

from tf_ext.errors import OperatorLibraryError
from tf_ext.ops import _library, build, find_tensorflow


def test_the_sources_are_at_hand():
    source = build.find_source()
    assert (source / "custom_ops" / "build_stamp.cc.in").is_file()
    assert list((source / "custom_ops" / "recursion").glob("*.cc"))


def test_without_sources_it_says_where_they_were_expected(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_OPS", tmp_path / "tf_ext" / "ops")
    with pytest.raises(OperatorLibraryError, match="tf_ext/ops/_source but are not there"):
        build.find_source()


@pytest.mark.parametrize(
    ("absent", "command"),
    [
        ("g++ clang++ c++", "apt-get install g++"),
        ("cmake", "-m pip install cmake"),
        ("ninja make", "-m pip install ninja"),
    ],
)
def test_a_missing_tool_is_named_with_the_command_that_installs_it(absent, command, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_program", lambda name: None if name in absent.split() else f"/usr/bin/{name}")
    with pytest.raises(OperatorLibraryError) as caught:
        build._find_tools()
    assert command in str(caught.value)
    assert str(caught.value).count("install") == 1


def test_a_failed_step_shows_what_the_tool_said():
    with pytest.raises(OperatorLibraryError, match=r"The build stopped in: sh -c .*\nno such header\n"):
        build._run(["sh", "-c", "echo no such header; exit 1"], verbose=False)


def test_the_library_is_replaced_by_a_new_file_and_nothing_is_left_behind(tmp_path):
    built, target = tmp_path / "built.so", tmp_path / "ops" / "_ops.so"
    target.parent.mkdir()
    target.write_bytes(b"old")
    built.write_bytes(b"new")
    with target.open("rb") as mapped:  # a process that still uses the old one
        build._put(built, target)
        assert mapped.read() == b"old"
    assert target.read_bytes() == b"new"
    assert os.stat(target).st_mode & 0o777 == 0o755
    assert list(target.parent.iterdir()) == [target]


def test_a_target_that_cannot_be_written_names_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    built = tmp_path / "built.so"
    built.write_bytes(b"new")
    with pytest.raises(OperatorLibraryError, match=r"--output FILE, and name that file in \$TF_EXT_OPS_LIBRARY"):
        build._put(built, tmp_path / "file" / "_ops.so")


def test_a_library_built_for_another_version_is_noticed(tmp_path):
    library, tensorflow = _library.find_library(), find_tensorflow()
    assert library is not None
    assert tensorflow is not None
    build._check(pathlib.Path(library), tensorflow)
    with pytest.raises(OperatorLibraryError, match=r"built for TensorFlow 9\.9\.9, but says 2\."):
        build._check(pathlib.Path(shutil.copy(library, tmp_path)), tensorflow._replace(version="9.9.9"))


def test_the_command_ends_with_1_and_the_sentence(monkeypatch, capsys):
    def fail(*_, **__):
        raise OperatorLibraryError("Building the operators needs a C++ compiler (apt-get install g++).")

    monkeypatch.setattr(build, "build", fail)
    assert build.main([]) == 1
    assert "needs a C++ compiler" in capsys.readouterr().err
