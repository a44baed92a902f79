"""In a Python worker: the model's files once a node, its engine once a process.

This module is imported by name, so what it remembers lives as long as the Python worker
(`spark.python.worker.reuse`), over tasks and jobs.
"""

from __future__ import annotations

import io
import logging
import os
import resource
import shutil
import stat
import tarfile
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from spark_ner.bundle import Bundle, open_bundle
from spark_ner.bundle.manifest import MANIFEST_NAME, read_manifest
from spark_ner.engine import Engine, engine_of, load_engine
from spark_ner.errors import BundleError, SetupError
from spark_ner.spark.ship import BundleRef, Shipped, one_variant

if TYPE_CHECKING:
    from pyspark import TaskContext

CACHE_VARIABLE = "SPARK_NER_CACHE"
LOCK_TIMEOUT_S = 600.0
_MAX_ENGINES = 4  # a worker that lives for days may meet many models
_CHUNK_BYTES = 1 << 20

_log = logging.getLogger(__name__)


@dataclass
class Counters:
    """What this process has done since it started; only grows."""

    model_loads: int = 0
    materialized: int = 0


COUNTERS = Counters()
_ENGINES: OrderedDict[tuple[str, str, str], Engine] = OrderedDict()
_LOADING = threading.Lock()


def engine_for(shipped: Shipped) -> Engine:
    """The process's engine for a shipped model, loaded on first use; threads and device are the task's."""
    task = _task()
    device = _device(shipped.spec.device, task)
    threads = shipped.spec.threads or (task.cpus() if task else 1)
    key = (shipped.ref.digest, f"{shipped.spec.fingerprint()}/{threads}", device)
    with _LOADING:
        if key not in _ENGINES:
            # Rust's pool of threads is made once a process, on first use, with every core unless told.
            os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
            spec = replace(shipped.spec, threads=threads, device=device)
            if shipped.ref.carrier is None:
                rules = dict(shipped.ref.rules) if shipped.ref.rules else None
                engine = load_engine("fake", spec=spec, rules=rules)
            else:
                engine = engine_of(open_shipped(shipped.ref), spec=spec)
            COUNTERS.model_loads += 1
            _ENGINES[key] = engine
            _log.info(
                "loaded %s (%s), %s, %d threads", shipped.ref.name, shipped.ref.digest[:12], device, threads
            )
        _ENGINES.move_to_end(key)
        while len(_ENGINES) > _MAX_ENGINES:
            _ENGINES.popitem(last=False)
        return _ENGINES[key]


def memory_peak_mb() -> float:
    """Most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def open_shipped(ref: BundleRef) -> Bundle:
    """The model's files on this node, every digest verified.

    Raises:
        BundleError: what a path or a carrier holds is not what the driver shipped.
        SetupError: the cache folder is not this user's, or another process holds its lock for minutes.
    """
    if ref.carrier != "path":
        return open_bundle(materialize(ref), variants=[ref.variant])
    bundle = open_bundle(str(ref.location), variants=[ref.variant])
    if one_variant(bundle.manifest, ref.variant).digest != ref.digest:
        raise BundleError(f"the model in {ref.location} on this worker is not the one that the driver opened")
    return bundle


def cache_root(cache_dir: str | None = None) -> Path:
    """The node's cache: the argument, `SPARK_NER_CACHE`, or a folder of this user's among the temporary ones.

    Raises:
        SetupError: it belongs to another user, or others may write to it: they could swap a model.
    """
    default = Path(tempfile.gettempdir(), f"spark-ner-{os.getuid()}")
    root = Path(cache_dir or os.environ.get(CACHE_VARIABLE) or default)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.lstat() if root == default else root.stat()
    except OSError as error:
        raise SetupError(
            f"the model cache {root} cannot be made: {error.strerror}; set {CACHE_VARIABLE}"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SetupError(
            f"the model cache {root} is a link or belongs to user {found.st_uid}: set {CACHE_VARIABLE}"
        )
    if found.st_mode & 0o022:
        raise SetupError(
            f"others may write to the model cache {root}: chmod go-w it, or set {CACHE_VARIABLE}"
        )
    return root


def materialize(ref: BundleRef) -> Path:
    """Folder with the model's files; the first process of a node writes it, others find it.

    It is written aside, verified, flushed to disk and renamed: it is there whole or not at all, whenever a
    process dies. The operating system frees the lock of a process that dies.
    """
    root = cache_root(ref.cache_dir)
    folder = root / ref.digest
    if _whole(folder):
        return folder
    with _locked(root / f"{ref.digest}.lock"):
        if _whole(folder):
            return folder
        # Left by a process that died, or by a broken disk; nobody else writes while this lock is held.
        for leftover in [*root.glob(f"{ref.digest}.part-*"), folder]:
            shutil.rmtree(leftover, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=f"{ref.digest}.part-", dir=root))
        with _carried(ref) as stream:
            _unpack(stream, aside)
        if open_bundle(aside).digest != ref.digest:
            raise BundleError(f"model {ref.name} arrived with another digest than it was sent with")
        _flush([*aside.rglob("*"), aside])
        aside.rename(folder)
        _flush([root])
        COUNTERS.materialized += 1
    return folder


def _whole(folder: Path) -> bool:
    """Whether every file is there with its size; opening the bundle verifies the digests."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    try:
        files = read_manifest(folder).files
        return all((folder / name).stat().st_size == entry.bytes for name, entry in files.items())
    except (BundleError, OSError):
        return False


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # slow to import, and most workers find the files there

    try:
        with FileLock(str(file), timeout=LOCK_TIMEOUT_S):
            yield
    except Timeout:
        raise SetupError(f"another process has held {file} for {LOCK_TIMEOUT_S:.0f} s") from None


@contextmanager
def _carried(ref: BundleRef) -> Iterator[IO[bytes]]:
    """The carrier's tar; only the process that materializes reads a broadcast, and lets go of it."""
    if ref.carrier == "artifact":
        from pyspark import SparkFiles

        with open(SparkFiles.get(str(ref.location)), "rb") as stream:
            yield stream
        return
    broadcast = ref.location
    if broadcast is None or isinstance(broadcast, str):
        raise BundleError(f"model {ref.name} was shipped without its files")
    yield io.BytesIO(broadcast.value)
    # pyspark keeps the value for the life of the process: 25 MB to some hundred that nothing reads again.
    vars(broadcast).pop("_value", None)


def _unpack(stream: IO[bytes], folder: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or Path(member.name).is_absolute() or ".." in Path(member.name).parts:
                raise BundleError(f"a shipped model holds plain files only, got {member.name!r}")
            place = folder / member.name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as target:
                shutil.copyfileobj(content, target, _CHUNK_BYTES)


def _flush(paths: Iterable[Path]) -> None:
    """Ask the disk to keep files and folders, so that a rename never outlives what it names."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _task() -> TaskContext | None:
    """The running Spark task; None outside Spark, where pyspark need not be there."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return None
    return TaskContext.get()


def _device(device: str, task: TaskContext | None) -> str:
    """`cuda` becomes the task's own GPU: a reused worker may get another, so no variable is set for it."""
    if device != "cuda" or task is None or "gpu" not in task.resources():
        return device
    return f"cuda:{task.resources()['gpu'].addresses[0]}"
