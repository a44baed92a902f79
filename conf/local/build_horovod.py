"""Builds Horovod for PyTorch with Gloo from its source package, once a machine; prints the wheel's place.

`.venv/bin/python conf/local/build_horovod.py conf/local/horovod.txt` builds for the torch and the Python that
run it. There is no ready-made wheel, and today's torch needs C++20 where Horovod asks for C++14. The first
line of the lock file is the source package with its sha256, the rest is what the build needs; pip fetches
both from wherever the user has pointed it. The wheel stays in `~/.cache/spark-ner/wheels` (`XDG_CACHE_HOME`
moves it), in a folder named after all that it depends on. A build at a time: another waits, then takes its
wheel.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SWITCHES = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
}
PATCHED = ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
OLD, NEW = "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"
# A wheel that fails this is not kept.
PROBE = "import horovod.torch as hvd; assert hvd.gloo_built(), 'built without Gloo'"
# A compiler takes up to 2 GB for one file of torch's headers.
MOST_JOBS = 8


def read_lock(path: Path) -> tuple[str, str, list[str]]:
    """Returns Horovod's `name==version`, its source package's sha256, and the build's requirements."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    match = re.fullmatch(r"(horovod==\S+) --hash=sha256:([0-9a-f]{64})", lines[0]) if lines else None
    if match is None:
        raise SystemExit(f'{path}: its first line is not "horovod==VERSION --hash=sha256:DIGEST"')
    loose = [line for line in lines[1:] if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)]
    if loose:
        raise SystemExit(f"{path}: not name==version: {loose}")
    return match[1], match[2], lines[1:]


def sha256(path: Path) -> str:
    """Returns the file's sha256 in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verified(sdist: Path, digest: str) -> Path:
    """Returns the source package; SystemExit if it is not the locked one."""
    got = sha256(sdist)
    if got != digest:
        raise SystemExit(f"{sdist.name} has the sha256 {got}, and {digest} is locked: nothing of it is run")
    return sdist


def torch_version() -> str:
    """Returns the version of the torch beside this Python."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"Horovod is built for a torch, and {sys.executable} has none: make setup") from None


def complaint(which: Callable[[str], str | None] = shutil.which, include: str | None = None) -> str | None:
    """Returns what this machine lacks for the build, as one sentence, or None."""
    lacks = [tool for tool in ("g++", "make") if which(tool) is None]
    headers = Path(include or sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        lacks.append(str(headers))
    if not lacks:
        return None
    return (
        f"Horovod is compiled here, and this machine lacks {' and '.join(lacks)}: install build-essential "
        "and python3-dev (Debian, Ubuntu), gcc-c++, make and python3-devel (Fedora), or Xcode's tools"
    )


def key(horovod: str, torch: str, needs: Sequence[str]) -> str:
    """Returns a folder name that changes with anything that could make another wheel."""
    parts = (SWITCHES, PATCHED, OLD, NEW, needs, platform.libc_ver(), sysconfig.get_config_var("SOABI"))
    recipe = hashlib.sha256(repr((horovod, torch, sys.version_info[:2], *parts)).encode()).hexdigest()[:12]
    where = re.sub(r"[^A-Za-z0-9]+", "_", sysconfig.get_platform())
    return f"{horovod.replace('==', '-')}-torch-{torch}-{sys.implementation.cache_tag}-{where}-{recipe}"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Returns the folder of the wheels that this project built."""
    # By the convention, an empty or relative XDG_CACHE_HOME is as good as none.
    home = Path(environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "spark-ner" / "wheels"


def cached(folder: Path) -> Path | None:
    """Returns the wheel in a folder of the cache, or None."""
    return next(iter(sorted(folder.glob("*.whl"))), None)


def keep(wheel: Path, folder: Path) -> Path:
    """Puts the wheel into the cache's folder: wholly, or not at all if killed."""
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)  # of a build that was killed; the caller holds the lock
    aside.mkdir(parents=True)
    shutil.copyfile(wheel, aside / wheel.name)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    return folder / wheel.name


def patch(tree: Path) -> None:
    """Asks for C++20 in Horovod's CMake files; SystemExit where they are not as expected."""
    for name in PATCHED:
        text = (tree / name).read_text(encoding="utf-8")
        if text.count(OLD) != 1:
            raise SystemExit(f"Horovod's {name} has {text.count(OLD)} times {OLD!r}, and once was expected")
        (tree / name).write_text(text.replace(OLD, NEW), encoding="utf-8")


def build_environ(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Returns the environment of the build: the switches, and nothing of an outer make's or Horovod's."""
    outer = ("HOROVOD_", "MAKE", "MFLAGS", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    clean = {name: value for name, value in environ.items() if not name.startswith(outer)}
    return (
        clean
        | SWITCHES
        | {
            "HOROVOD_CMAKE": str(home / "bin/cmake"),
            "MAKEFLAGS": f"-j{min(os.cpu_count() or 1, MOST_JOBS)}",
            "PATH": f"{home / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
        }
    )


def run(command: Sequence[str | Path], environ: Mapping[str, str]) -> None:
    """Runs a command quietly; SystemExit carries its last words."""
    ran = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode != 0:
        tail = "\n".join(ran.stdout.strip().splitlines()[-40:])
        raise SystemExit(f"failed ({ran.returncode}): {' '.join(map(str, command))}; its last words:\n{tail}")


def build(horovod: str, digest: str, needs: Sequence[str], scratch: Path) -> Path:
    """Returns a new wheel under the scratch folder, which imports beside the torch of this Python."""
    home, sdists, tree, wheels = (scratch / name for name in ("venv", "sdist", "source", "wheel"))
    venv.create(home, with_pip=True)
    # The build's own tools first, then torch and numpy from the environment that is built for.
    site = next((home / "lib").glob("python3*/site-packages"))
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    environ = build_environ(os.environ, home)
    pip = [home / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--no-deps", "--ignore-installed", *needs], environ)
    # With the digest in a requirements file, pip compares it before it runs the package's setup.py.
    (scratch / "sdist.txt").write_text(f"{horovod} --hash=sha256:{digest}\n", encoding="utf-8")
    source = ["--no-deps", "--no-build-isolation"]
    fetch = ["--no-binary", "horovod", "--require-hashes", "-r", scratch / "sdist.txt", "-d", sdists]
    run([*pip, "download", *source, *fetch], environ)
    with tarfile.open(verified(next(sdists.iterdir()), digest)) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tree, **safe)
    (tree,) = tree.iterdir()
    patch(tree)
    run([*pip, "wheel", *source, "-w", wheels, tree], environ)
    (wheel,) = wheels.glob("*.whl")
    run([*pip, "install", "--no-deps", wheel], environ)
    run([home / "bin/python", "-c", PROBE], environ)
    return wheel


def main() -> int:
    """Prints the wheel's path, built now or earlier; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lock", type=Path, help="the file with the digest and the build's requirements")
    args = parser.parse_args()
    horovod, digest, needs = read_lock(args.lock)
    torch = torch_version()
    folder = cache_folder(os.environ) / key(f"{horovod}", torch, [digest, *needs])
    wheel = cached(folder)
    if wheel is None:
        lacking = complaint()
        if lacking:
            raise SystemExit(lacking)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with Path(f"{folder}.lock").open("w") as lock, tempfile.TemporaryDirectory() as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wheel = cached(folder)
            if wheel is None:
                print(f"building {horovod} for torch {torch}: 2 to 5 minutes, once", file=sys.stderr)
                wheel = keep(build(horovod, digest, needs, Path(scratch)), folder)
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
