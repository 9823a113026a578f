"""A Python of its own with the wheels of wheels.txt, in the folder of cargo's output."""

import pathlib
import subprocess

from harness.daemon import CHECKOUT, Missing

WANTED = pathlib.Path(__file__).resolve().parents[1] / "wheels.txt"
FOLDER = CHECKOUT / "target/lab/wheels"
PYTHON = FOLDER / "bin/python"


def install():
    """Makes it, unless it is there with these wheels. They are compared with the hashes in the file."""
    wanted, made = WANTED.read_text(), FOLDER / "wheels.txt"
    if made.exists() and made.read_text() == wanted:
        return
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--require-hashes"]
    for command in (
        ["/usr/bin/python3", "-m", "venv", "--clear", str(FOLDER)],
        [*pip, "--only-binary", ":all:", "-r", str(WANTED)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"the wheels of {WANTED.name} cannot be installed ({' '.join(command)}):\n{done.stdout}{done.stderr}")
    made.write_text(wanted)
