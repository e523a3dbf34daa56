"""The code in the documentation runs: all blocks marked `python` of a page, one after the other, in a new process."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def _blocks(text: str) -> str:
    """The code of a page, with blank lines in the place of the rest, so that an error names the page's own line."""
    code: list[str] = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2))
        code += [""] * (line - len(code))
        code += [row.removeprefix(block[1]) for row in block[2].splitlines()]
    return "\n".join(code)


PAGES = {
    str(page.relative_to(ROOT)): _blocks(page.read_text())
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}


@pytest.mark.parametrize("page", [page for page, code in PAGES.items() if code])
def test_the_code_of_the_page_runs(page, tmp_path):
    # A file and not a string: AutoGraph reads the source of the functions that it converts.
    program = tmp_path / (pathlib.Path(page).stem + ".py")
    program.write_text(PAGES[page])
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_blocks_keep_their_line_numbers():
    text = "# T\n\n```python\na = 1\n```\n\n```bash\nls\n```\n\n- x\n\n    ```python\n    b = 2\n    ```\n"
    assert _blocks(text).splitlines() == ["", "", "", "a = 1", *[""] * 9, "b = 2"]
