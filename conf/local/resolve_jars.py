"""Copies the Delta jars for a Spark version into a folder, once, so that no session waits for Ivy.

`.venv/bin/python conf/local/resolve_jars.py conf/local/jars.txt .jars` resolves the coordinates named in the
lock file through Spark's own Ivy, which looks into the user's Ivy and Maven caches first and obeys what the
user has set: `DEFAULT_ARTIFACT_REPOSITORY` (a mirror), `SPARK_NER_IVY_SETTINGS` (an ivysettings.xml),
`JAVA_TOOL_OPTIONS` (a proxy). Every jar must have the sha256 in the lock file. Jars that Spark itself ships
are left out: two versions of one library on a class path end in errors that name neither.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Runs inside spark-submit, which has put what it resolved into spark.jars. No SparkContext is started.
PROBE = """
from pyspark import SparkConf, SparkContext
SparkContext._ensure_initialized()
print("JARS=" + SparkConf().get("spark.jars", ""))
"""
# Spark ships these; they are half of the download.
EXCLUDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"


def read_lock(path: Path) -> tuple[str, dict[str, str]]:
    """Returns the Maven coordinates in the lock file's `package` line, and sha256 by jar name."""
    package, digests = "", {}
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split("#")[0].split()
        if len(words) == 2 and words[0] == "package":
            package = words[1]
        elif len(words) == 2:
            digests[words[1]] = words[0]
    if not package:
        raise SystemExit(f'{path}: no line "package group:artifact:version"')
    return package, digests


def sha256(path: Path) -> str:
    """Returns the file's sha256 in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def complete(folder: Path, digests: dict[str, str]) -> bool:
    """Tells whether the folder holds exactly the locked jars."""
    present = {jar.name: jar for jar in folder.glob("*.jar")}
    return (
        bool(digests)
        and present.keys() == digests.keys()
        and all(sha256(present[n]) == d for n, d in digests.items())
    )


def resolve(package: str) -> list[Path]:
    """Returns the jars that Spark's Ivy finds for the coordinates; SystemExit carries Ivy's last words."""
    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch, "probe.py")
        probe.write_text(PROBE, encoding="utf-8")
        submit = Path(sys.executable).with_name("spark-submit")
        command = [str(submit), "--master", "local[1]", "--packages", package, "--exclude-packages", EXCLUDED]
        settings = os.environ.get("SPARK_NER_IVY_SETTINGS")
        if settings:
            command += ["--conf", f"spark.jars.ivySettings={settings}"]
        environ = {
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        ran = subprocess.run([*command, str(probe)], capture_output=True, text=True, check=False, env=environ)
    found = [line for line in ran.stdout.splitlines() if line.startswith("JARS=")]
    if ran.returncode != 0 or not found:
        tail = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-15:])
        raise SystemExit(f"Spark could not resolve {package}; its last words:\n{tail}")
    return [Path(jar.removeprefix("file:")) for jar in found[-1].removeprefix("JARS=").split(",") if jar]


def shipped_artifacts() -> set[str]:
    """Returns the artifact names (no versions) of the jars inside the installed pyspark."""
    import pyspark

    return {artifact(jar.name) for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")}


def artifact(jar: str, *, group: bool = False) -> str:
    """Returns `delta-storage` for `delta-storage-4.4.0.jar`; `group` strips Ivy's `io.delta_`."""
    name = jar.removesuffix(".jar")
    if group:
        name = name.split("_", 1)[1]
    words = name.split("-")
    for i, word in enumerate(words):
        if i and word[:1].isdigit():
            return "-".join(words[:i])
    return name


def main() -> int:
    """Fills the folder unless it is complete already; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lock", type=Path, help="the file with the coordinates and the digests")
    parser.add_argument("folder", type=Path, help="where the jars go")
    parser.add_argument("--relock", action="store_true", help="write the digests found, check none")
    args = parser.parse_args()
    package, digests = read_lock(args.lock)
    if not args.relock and complete(args.folder, digests):
        print(f"{args.folder}: {len(digests)} jars, as locked")
        return 0
    shipped = shipped_artifacts()
    jars = [jar for jar in resolve(package) if artifact(jar.name, group=True) not in shipped]
    jars.sort(key=lambda jar: jar.name)
    found = {jar.name: sha256(jar) for jar in jars}
    if args.relock:
        lines = [f"package {package}", *(f"{digest} {name}" for name, digest in found.items())]
        args.lock.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif found != digests:
        both = sorted(set(found.items()) ^ set(digests.items()))
        raise SystemExit(f"the jars of {package} are not those locked in {args.lock}; they differ in: {both}")
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    for jar in jars:
        shutil.copyfile(jar, args.folder / jar.name)
    print(f"{args.folder}: {len(jars)} jars of {package}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
