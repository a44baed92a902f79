"""Says in one sentence whether a Java that Spark can run on is there; exit code 2 when it is not.

Run as `python3 conf/local/check_java.py [--at-most 21]`, before anything is installed: standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys

AT_LEAST = 17


def find_java(environ: dict[str, str]) -> str | None:
    """Returns the java that spark-submit would start: `$JAVA_HOME/bin/java` or else PATH's; None for none."""
    home = environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java", path=environ.get("PATH"))


def major_version(banner: str) -> int | None:
    """Returns 17 for `openjdk version "17.0.15" ...`, 8 for "1.8.0_412", None where there is no version."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if found is None:
        return None
    first, second = int(found.group(1)), int(found.group(2) or 0)
    return second if first == 1 else first


def complaint(environ: dict[str, str], *, at_most: int | None = None) -> str | None:
    """Returns what is wrong with the machine's Java and what to do, in one sentence; None when it will do."""
    wanted = f"Java {AT_LEAST} or later" if at_most is None else f"Java {AT_LEAST} to {at_most}"
    package = f"openjdk-{AT_LEAST}-jre-headless"
    advice = f"install {wanted} (Debian, Ubuntu: `apt-get install {package}`) or set JAVA_HOME"
    java = find_java(environ)
    if java is None:
        where = f"in JAVA_HOME={environ['JAVA_HOME']}" if environ.get("JAVA_HOME") else "on PATH"
        return f"Spark needs {wanted}, and there is no java {where}: {advice}."
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = major_version(ran.stderr + ran.stdout)
    if version is None:
        return f"Spark needs {wanted}, and `{java} -version` names no version: {advice}."
    if version < AT_LEAST or (at_most is not None and version > at_most):
        return f"Spark needs {wanted}, and {java} is Java {version}: {advice}."
    return None


def main() -> int:
    """Prints the complaint, if any, to stderr; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-most", type=int, help="the newest major version that this Spark runs on")
    found = complaint(dict(os.environ), at_most=parser.parse_args().at_most)
    if found is not None:
        print(found, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
