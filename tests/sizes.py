"""Compares the sizes of this repository with the ceilings in pyproject.toml, which only fall.

Lines of code are counted as tokenized: no blanks, comments and docstrings. `python tests/sizes.py` ends with 1 where a
size is above its ceiling; with --lower, every ceiling becomes what is measured, where that is less.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_INSTALLED = (
    "tests/", "experiments/", "loadtests/", "deploy/", "docs/", "clients/examples/", "clients/javascript/",
)  # fmt: skip


def count_lines(source: bytes) -> int:
    """Lines that hold a token of code."""
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def measure(root: Path = ROOT) -> dict[str, int]:
    """Every size by the name of its ceiling."""
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    files = [name for name in done.stdout.splitlines() if (root / name).is_file()]
    code = [name for name in files if name.endswith(".py") and "_pb2" not in name]
    product = [name for name in code if not name.startswith(("tests/", "experiments/"))]
    pages = [name for name in files if name.endswith(".md") and name.startswith(("docs/", "README", "CONTRIBUTING"))]
    installed = [
        name
        for name in files
        if name.endswith((".py", ".js", ".html", ".toml")) and "/" in name and not name.startswith(_NOT_INSTALLED)
    ]
    scripts = [tomllib.loads((root / name).read_text())["project"] for name in files if name.endswith("pyproject.toml")]

    def lines(names: Iterable[str]) -> int:
        return sum(count_lines((root / name).read_bytes()) for name in names)

    return {
        "product_lines": lines(product),
        "product_modules": sum(not name.endswith("__init__.py") for name in product),
        "experiment_lines": lines(name for name in code if name.startswith("experiments/")),
        "test_lines": lines(name for name in code if name.startswith("tests/")),
        "test_support_files": sum(name.startswith("tests/support/") for name in code),
        "docs_words": sum(len((root / name).read_text(encoding="utf-8").split()) for name in pages),
        "docs_pages": len(pages),
        "make_targets": len(set(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text(), re.MULTILINE))),
        "requirement_files": sum(name.startswith("requirements/") and name.endswith((".in", ".txt")) for name in files),
        "console_scripts": len({name for each in scripts for name in each.get("scripts", {})}),
        "installed_bytes": sum((root / name).stat().st_size for name in installed),
    }


def find_excess(sizes: Mapping[str, int], ceilings: Mapping[str, int]) -> list[str]:
    """A sentence for each size above its ceiling, and for each without one."""
    above = [
        f"{name} is {size:,}, the ceiling {ceilings[name]:,}"
        for name, size in sizes.items()
        if name in ceilings and size > ceilings[name]
    ]
    return above + [f"{name} has no ceiling" for name in sizes if name not in ceilings]


def lower(text: str, sizes: Mapping[str, int], ceilings: Mapping[str, int]) -> str:
    """The text of pyproject.toml with every ceiling that is higher than its size lowered to it."""
    for name, size in sizes.items():
        if size < ceilings.get(name, 0):
            text = re.sub(rf"^{name} = [\d_]+$", f"{name} = {size}", text, flags=re.MULTILINE)
    return text


def main() -> int:
    """The exit code."""
    file = ROOT / "pyproject.toml"
    ceilings: dict[str, int] = tomllib.loads(file.read_text())["tool"]["turnscore"]["ceilings"]
    sizes = measure()
    if "--lower" in sys.argv:
        file.write_text(lower(file.read_text(), sizes, ceilings))
    for name, size in sizes.items():
        sys.stdout.write(f"{name:20} {size:>10,}  of {ceilings.get(name, 0):>10,}\n")
    excess = find_excess(sizes, ceilings)
    sys.stderr.writelines(f"{sentence}\n" for sentence in excess)
    return 1 if excess else 0


if __name__ == "__main__":
    sys.exit(main())
