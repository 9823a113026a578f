"""Examples of crates that others wrote, built as crates.io has them, in the folder of cargo's output."""

import json
import pathlib
import shutil
import subprocess

from harness.daemon import CHECKOUT, Missing

WANTED = {"sideway": "=0.4.3", "ibverbs": "=0.9.2"}
FOLDER = CHECKOUT / "target/lab/crates"


def example(name):
    """Where the program of an example is."""
    return FOLDER / "built/debug/examples" / name


def install():
    """Builds them, unless these versions are built."""
    made = FOLDER / "versions"
    if made.exists() and made.read_text() == str(WANTED):
        return
    shutil.rmtree(FOLDER / "crates", ignore_errors=True)
    (FOLDER / "crates/src").mkdir(parents=True)
    (FOLDER / "crates/src/lib.rs").touch()
    wanted = "".join(f'{name} = "{version}"\n' for name, version in WANTED.items())
    manifest = FOLDER / "crates/Cargo.toml"
    manifest.write_text(f'[workspace]\n[package]\nname = "crates"\nversion = "0.0.0"\n[dependencies]\n{wanted}')
    described = json.loads(cargo("metadata", "--format-version", "1", "--manifest-path", manifest))
    for package in described["packages"]:
        if package["name"] in WANTED:
            # (Its own folder is everybody's.)
            copy = FOLDER / "crates" / package["name"]
            shutil.copytree(pathlib.Path(package["manifest_path"]).parent, copy)
            with open(copy / "Cargo.toml", "a") as own:
                own.write("\n[workspace]\n")
            cargo("build", "--quiet", "--examples", "--manifest-path", copy / "Cargo.toml", "--target-dir", FOLDER / "built")
    made.write_text(str(WANTED))


def cargo(*words):
    """What cargo says."""
    command = ["cargo", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER)
    if done.returncode:
        needed = "packages: cmake libclang-dev libnl-3-dev libnl-route-3-dev libibverbs-dev pkg-config"
        raise Missing(f"examples of crates are not built ({' '.join(command)}; {needed}):\n{done.stderr[-3000:]}")
    return done.stdout
