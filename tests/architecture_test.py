"""The house's walls: which package may import which, who may touch private modules, who needs TensorFlow."""

import ast
import pathlib
import subprocess
import sys

import pytest

import tf_ext

PACKAGE = pathlib.Path(tf_ext.__file__).parent

# Arrows point down: a package imports only packages of lower layers.
# `None`: may import all, and none of the others imports it.
LAYERS = {
    "errors": 1,
    "ops": 2,
    "graph": 2,
    "planning": 2,
    "checkpoint": 2,
    "comm": 2,
    "table": 2,
    "cluster": 3,
    "recursion": 4,
    "distribute": 4,
    "tuner": 4,
    "lite": 4,
    "elastic": 5,
    "tensorboard": 6,
    "cli": 7,
    "testing": None,
}

# A TensorFlow upgrade breaks here and nowhere else.
MAY_TOUCH_PRIVATE_MODULES = (
    "tf_ext.graph",
    "tf_ext.ops",
    "tf_ext.recursion",
    "tf_ext.distribute",
    "tf_ext.checkpoint.keras",
)
PRIVATE_MODULES = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "keras.src")

WITHOUT_TENSORFLOW = (
    "tf_ext",
    "tf_ext.errors",
    "tf_ext.ops",
    "tf_ext.cli",
    "tf_ext.planning",
    "tf_ext.checkpoint",
    "tf_ext.checkpoint.store",
    "tf_ext.comm",
    "tf_ext.table",
    "tf_ext.cluster",
    "tf_ext.lite",
    "tf_ext.lite.engine",
    "tf_ext.lite.bundle",
    "tf_ext.tuner",
    "tf_ext.tuner.views",
    "tf_ext.tensorboard.plugin",
)


def _module_name(path: pathlib.Path, root: pathlib.Path = PACKAGE) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join([root.name, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _imports(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that `source`, the text of `module`, names in an import, relative ones made absolute."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            # `from tf_ext import ops` names a module in its second half.
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def _modules() -> dict[str, set[str]]:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if "_source" not in path.parts]
    return {
        _module_name(path): _imports(path.read_text(), _module_name(path), path.name == "__init__.py") for path in files
    }


def _room(module: str) -> str | None:
    """The package of the suite that a module belongs to: ``"ops"`` of ``"tf_ext.ops.build"``."""
    parts = module.split(".")
    return parts[1] if parts[0] == "tf_ext" and len(parts) > 1 else None


def _wrong_arrows(modules: dict[str, set[str]]) -> list[str]:
    wrong = []
    for module, imported in modules.items():
        own = _room(module)
        for other in imported:
            room = _room(other)
            if room not in LAYERS or own is None or room == own or LAYERS[own] is None:
                continue
            layer, target = LAYERS[own], LAYERS[room]
            if target is None or layer is None or target >= layer:
                wrong.append(f"{module} imports {other}")
    return wrong


def _under(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def _exists(module: str) -> bool:
    stem = PACKAGE.parent.joinpath(*module.split("."))
    return stem.with_suffix(".py").exists() or (stem / "__init__.py").exists()


def test_every_package_is_in_a_layer():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= set(LAYERS)
    assert {"errors", "ops", "cli", "testing"} <= rooms


def test_arrows_point_down():
    assert _wrong_arrows(_modules()) == []


def test_private_modules_are_touched_only_where_that_is_allowed():
    touched = [
        f"{module} imports {other}"
        for module, imported in _modules().items()
        if not _under(module, MAY_TOUCH_PRIVATE_MODULES)
        for other in imported
        if _under(other, PRIVATE_MODULES)
    ]
    assert touched == []


@pytest.mark.parametrize(
    ("source", "module", "is_package", "expected"),
    [
        ("import tf_ext.cli.parts", "tf_ext.ops.build", False, "tf_ext.cli.parts"),
        ("from tf_ext import cli", "tf_ext.ops.build", False, "tf_ext.cli"),
        ("from ..cli import main", "tf_ext.ops.build", False, "tf_ext.cli.main"),
        ("from .. import cli", "tf_ext.ops.build", False, "tf_ext.cli"),
        ("from .. import cli", "tf_ext.ops", True, "tf_ext.cli"),
        ("from ._x import y", "tf_ext.ops", True, "tf_ext.ops._x"),
        ("def f():\n    from ...cli import parts", "tf_ext.ops.a.b", False, "tf_ext.cli.parts"),
    ],
)
def test_imports_are_seen_in_every_form(source, module, is_package, expected):
    assert expected in _imports(source, module, is_package)


@pytest.mark.parametrize(
    ("module", "imported", "wrong"),
    [
        ("tf_ext.ops.x", "tf_ext.errors", False),
        ("tf_ext.ops.x", "tf_ext.graph", True),  # the same layer
        ("tf_ext.tuner", "tf_ext.recursion", True),
        ("tf_ext.elastic", "tf_ext.distribute", False),
        ("tf_ext.cli", "tf_ext.testing", True),
        ("tf_ext.testing", "tf_ext.cli", False),
        ("tf_ext.errors", "tf_ext.ops", True),
    ],
)
def test_an_arrow_that_points_up_or_sideways_is_found(module, imported, wrong):
    assert bool(_wrong_arrows({module: {imported}})) is wrong


# `find_spec` fails for a blocked module as it does for one that is not installed.
_BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def _without_tensorflow(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _BLOCK + code], capture_output=True, text=True, check=False)


def test_packages_that_need_no_tensorflow_import_without_it():
    present = [name for name in WITHOUT_TENSORFLOW if _exists(name)]
    imports = "".join(f"import {name}\n" for name in present)
    done = _without_tensorflow(imports + "print(sorted(m for m in sys.modules if m.split('.')[0] == 'tensorflow'))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert {"tf_ext", "tf_ext.errors", "tf_ext.ops", "tf_ext.cli", "tf_ext.checkpoint.store"} <= set(present)


@pytest.mark.parametrize(
    "code",
    [
        "from tf_ext import ops; ops.load()",
        *(
            f"import {room}"
            for room in ("tf_ext.graph", "tf_ext.recursion", "tf_ext.checkpoint.keras")
            if _exists(room)
        ),
    ],
)
def test_what_needs_tensorflow_says_so_in_a_sentence(code):
    done = _without_tensorflow(code)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tf_ext.errors.OperatorLibraryError: tf_ext")
    assert "pip install 'tensorflow-cpu>=2." in last


def test_the_version_is_told_without_tensorflow():
    done = _without_tensorflow("sys.argv = ['tf-ext', '--version']\nfrom tf_ext.cli import main\nmain()")
    assert (done.returncode, done.stdout.strip()) == (0, f"tf_ext {tf_ext.__version__}"), done.stderr


def test_doctor_without_tensorflow_names_the_command_that_installs_it():
    done = _without_tensorflow("sys.argv = ['tf-ext', 'doctor', '--json']\nfrom tf_ext.cli import main\nmain()")
    assert done.returncode == 1, done.stderr
    assert "pip install 'tensorflow-cpu>=2." in done.stdout
