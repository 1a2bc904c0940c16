"""Fresh environments for Python, and the pins of requirements/."""

import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

NOT_COMPILED = {"PIP_COMPILE": "0"}  # for pip: what is never imported need not be compiled


def empty_environment(folder):
    """The interpreter of a new environment without anything, pip included."""
    venv.create(folder)
    return folder / "bin" / "python"


def pip_install(interpreter, *words):
    """Installs into that environment with this one's pip."""
    command = [sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-compile", *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def environment_with(folder, names):
    """The interpreter of a new environment that holds these distributions of this one: links to their files."""
    interpreter = empty_environment(folder)
    [packages] = folder.glob("lib/python3*/site-packages")
    for name in names:
        found = distribution(name)
        _link(found, packages)
        for script in found.entry_points.select(group="console_scripts"):
            call = f"import sys\nfrom {script.module} import {script.attr}\nsys.exit({script.attr}())\n"
            file = folder / "bin" / script.name
            file.write_text(f"#!{interpreter}\n{call}")
            file.chmod(0o700)
    return interpreter


def _link(found, packages):
    for file in found.files or ():
        source, target = Path(str(found.locate_file(file))), packages / file
        if ".." not in file.parts and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


_FOLDER = Path(__file__).parents[2] / "requirements"


def pins(file, section=""):
    """Versions by the names of the distributions; of a file with several environments, those of one."""
    text = (_FOLDER / file).read_text()
    lines = (text.partition(f"\n# {section}\n")[2].partition("\n# ")[0] if section else text).splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if re.match(r"[a-z]", line))


def unhashed(file):
    """The pins without the hash of a file: nothing goes on behind them."""
    lines = (_FOLDER / file).read_text().splitlines()
    return [line for line in lines if re.match(r"[a-z]", line) and not line.endswith(" \\")]
