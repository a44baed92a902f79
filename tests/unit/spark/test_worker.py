"""The node's cache and the process's engines, by real processes; no Spark."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_ner.bundle import Bundle
from spark_ner.engine import EngineSpec
from spark_ner.errors import BundleError, SetupError
from spark_ner.spark import worker
from spark_ner.spark.ship import BundleRef, Shipped, one_variant, pack
from tests.fixtures.tiny import tiny_bundle

ROOT = Path(__file__).resolve().parents[3]


class CarriedByFile:
    """What a broadcast is to a worker: a value read from a file when asked for."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def value(self) -> bytes:
        return self.file.read_bytes()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return tiny_bundle(tmp_path / "tiny", padding_bytes=200_000)


@pytest.fixture
def ref(tmp_path: Path, bundle: Bundle) -> BundleRef:
    manifest = one_variant(bundle.manifest, "int8")
    carrier = tmp_path / "carried"
    carrier.write_bytes(pack(bundle, manifest))
    return BundleRef(
        name="tiny",
        digest=manifest.digest,
        variant="int8",
        carrier="broadcast",
        location=CarriedByFile(carrier),  # type: ignore[arg-type]
        cache_dir=str(tmp_path / "cache"),
    )


def spawn(ref: BundleRef, tmp_path: Path, code: str) -> subprocess.Popen[str]:
    """Another process that has `ref`, and materializes as `code` says."""
    (tmp_path / "ref.pickle").write_bytes(pickle.dumps(ref))
    start = (
        "import pickle; from spark_ner.spark import worker\n"
        f"ref = pickle.load(open({str(tmp_path / 'ref.pickle')!r}, 'rb'))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", start + code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_files_arrive_whole_and_are_found_again(ref: BundleRef, bundle: Bundle) -> None:
    before = worker.COUNTERS.materialized
    folder = worker.materialize(ref)
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "manifest.json"} == {
        name: bundle.file(name).read_bytes() for name in ("tokenizer.json", "model.onnx")
    }
    ref.location.file.unlink()  # type: ignore[union-attr]
    assert worker.materialize(ref) == folder  # the carrier is not read again
    assert worker.COUNTERS.materialized - before == 1
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in folder.parent.iterdir()) == sorted([ref.digest, f"{ref.digest}.lock"])


def test_a_broadcast_s_value_is_let_go(ref: BundleRef) -> None:
    held = SimpleNamespace(value=ref.location.value, _value="what pyspark keeps")  # type: ignore[union-attr]
    ref = BundleRef(**{**vars(ref), "location": held})
    worker.materialize(ref)
    assert not hasattr(held, "_value")


def test_processes_that_start_together_materialize_once(ref: BundleRef, tmp_path: Path) -> None:
    racers = [
        spawn(ref, tmp_path, "worker.open_shipped(ref); print(worker.COUNTERS.materialized)")
        for _ in range(3)
    ]
    counts = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sorted(counts) == [0, 0, 1]


def test_a_killed_process_leaves_nothing_that_counts(ref: BundleRef, tmp_path: Path) -> None:
    """C52: kill -9 in the middle of the copy, with half a file written and the lock held."""
    stuck = spawn(
        ref,
        tmp_path,
        """
import shutil, time
def half(source, target, size):
    target.write(source.read(1000)); target.flush()
    print("half", flush=True); time.sleep(60)
shutil.copyfileobj = half
worker.materialize(ref)
""",
    )
    assert stuck.stdout is not None
    assert stuck.stdout.readline() == "half\n"
    waiting = spawn(ref, tmp_path, "print(worker.open_shipped(ref).digest)")
    time.sleep(0.3)
    assert waiting.poll() is None  # it waits for the lock
    stuck.send_signal(signal.SIGKILL)
    stuck.wait()
    out, err = waiting.communicate(timeout=60)
    assert out.strip() == ref.digest, err
    root = Path(str(ref.cache_dir))
    assert sorted(p.name for p in root.iterdir()) == sorted([ref.digest, f"{ref.digest}.lock"])


@pytest.mark.parametrize("damage", ["truncated", "missing", "no manifest"])
def test_a_damaged_folder_is_written_anew(ref: BundleRef, damage: str) -> None:
    folder = worker.materialize(ref)
    weights = folder / "model.onnx"
    if damage == "truncated":
        os.truncate(weights, 100)
    else:
        (weights if damage == "missing" else folder / "manifest.json").unlink()
    assert worker.open_shipped(ref).digest == ref.digest


def test_changed_bytes_are_found_on_opening(ref: BundleRef) -> None:
    weights = worker.materialize(ref) / "model.onnx"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(BundleError, match="was changed"):
        worker.open_shipped(ref)


def test_a_carrier_with_other_content_is_refused(ref: BundleRef, tmp_path: Path) -> None:
    other = tiny_bundle(tmp_path / "other", padding_bytes=10)
    ref.location.file.write_bytes(pack(other, other.manifest))  # type: ignore[union-attr]
    with pytest.raises(BundleError, match="another digest"):
        worker.materialize(ref)
    assert not (Path(str(ref.cache_dir)) / ref.digest).exists()


def test_a_path_must_hold_what_the_driver_saw(bundle: Bundle, tmp_path: Path) -> None:
    ref = BundleRef(
        name="tiny", digest=bundle.digest, variant="int8", carrier="path", location=str(bundle.path)
    )
    assert worker.open_shipped(ref).path == bundle.path
    tiny_bundle(bundle.path, padding_bytes=7)
    with pytest.raises(BundleError, match="not the one that the driver opened"):
        worker.open_shipped(ref)


def test_the_cache_folder_is_the_argument_the_variable_or_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_NER_CACHE", str(tmp_path / "variable"))
    assert worker.cache_root(str(tmp_path / "argument")) == tmp_path / "argument"
    assert worker.cache_root() == tmp_path / "variable"
    monkeypatch.delenv("SPARK_NER_CACHE")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert worker.cache_root() == tmp_path / f"spark-ner-{os.getuid()}"
    assert stat.S_IMODE(worker.cache_root().stat().st_mode) == 0o700


def test_a_cache_folder_that_others_could_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(SetupError, match="others may write"):
        worker.cache_root(str(open_to_all))
    mine = tmp_path / "mine"
    worker.cache_root(str(mine))
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(SetupError, match=f"belongs to user {uid}: set SPARK_NER_CACHE"):
        worker.cache_root(str(mine))
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("SPARK_NER_CACHE", raising=False)
    (tmp_path / f"spark-ner-{uid}").symlink_to(mine)  # anybody can put a link among the temporary files
    with pytest.raises(SetupError, match="is a link"):
        worker.cache_root()


def test_a_file_in_the_cache_s_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be made"):
        worker.cache_root(str(tmp_path / "file"))


def test_an_engine_is_loaded_once_and_few_are_kept(ref: BundleRef) -> None:
    before = worker.COUNTERS.model_loads
    shipped = Shipped(ref, EngineSpec())
    engine = worker.engine_for(shipped)
    assert worker.engine_for(Shipped(ref, EngineSpec())) is engine
    assert engine.spec.threads == 1  # outside a task
    assert engine.annotate(["in Oslo"])[0] == [(3, 7, "Oslo", "LOC", pytest.approx(0.982, abs=1e-3))]
    assert worker.COUNTERS.model_loads - before == 1
    for tokens in range(100, 104):
        worker.engine_for(Shipped(ref, EngineSpec(batch_tokens=tokens)))
    assert len(worker._ENGINES) == 4
    assert worker.engine_for(shipped) is not engine
    assert worker.COUNTERS.model_loads - before == 6


def test_a_task_s_own_gpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(resources=lambda: {"gpu": SimpleNamespace(addresses=["3"])})
    assert worker._device("cuda", task) == "cuda:3"  # type: ignore[arg-type]
    assert worker._device("cuda:1", task) == "cuda:1"  # type: ignore[arg-type]
    assert worker._device("cpu", task) == "cpu"  # type: ignore[arg-type]
    assert worker._device("cuda", None) == "cuda"


def test_memory_is_measured_in_mib() -> None:
    assert 20 < worker.memory_peak_mb() < 100_000
