"""From the driver to the workers: one small reference to a model, and three ways to carry its files.

A broadcast carries them on a classic session, an artifact on Spark Connect, and a path where the model is
large or every worker sees it anyway. What is carried is one variant: a tar of its files, the tokenizer, and a
manifest that names no others, whose digest names the whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spark_ner.bundle import Bundle, Manifest, open_bundle
from spark_ner.bundle.manifest import MANIFEST_NAME
from spark_ner.config import from_dict
from spark_ner.engine import EngineSpec, load_engine
from spark_ner.engine.tokenizer import Tokenizer
from spark_ner.errors import BundleError, ConfigError

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

Carrier = Literal["broadcast", "artifact", "path"]

# Above this a broadcast would hold up the driver and every executor's block manager: a path is better.
MAX_CARRIED_BYTES = 400 << 20

# What was sent, by application (or Connect session) and digest: a second call for a model sends nothing.
_SENT: dict[tuple[str, str], Broadcast[bytes] | str] = {}


@dataclass(frozen=True, kw_only=True)
class BundleRef:
    """Where a worker finds a model; small and picklable, whatever the model's size."""

    name: str
    digest: str  # of the manifest of the one variant: covers every file a worker reads
    variant: str = ""
    carrier: Carrier | None = None  # None: there are no files (the fake)
    location: Broadcast[bytes] | str | None = field(default=None, repr=False, compare=False)
    rules: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # of the fake
    cache_dir: str | None = None  # on the worker; None: see `worker.cache_root`


@dataclass(frozen=True)
class Shipped:
    """A model that workers can reach, and what its engines are told."""

    ref: BundleRef
    spec: EngineSpec


def ship(
    spark: SparkSession,
    model: str | Path = "default",
    *,
    spec: EngineSpec | None = None,
    carrier: Carrier | Literal["auto"] = "auto",
    rules: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
) -> Shipped:
    """Open and verify a model, and make it reachable for the session's workers; a repeated call reuses it.

    Args:
        spark: classic or Connect session.
        model: a shipped model's name, a directory on the driver, or `fake`.
        spec: settings of the engines; refused here where they do not fit the model.
        carrier: `auto` broadcasts, or on Connect adds an artifact, up to 400 MB; above that, and with `path`,
            the directory must be at the same place on every worker.
        rules: word to tag, for `fake` alone.
        cache_dir: where workers keep the files.

    Raises:
        PathError, BundleError, LabelError, ConfigError: see each class.
    """
    spec = spec or EngineSpec()
    if str(model) == "fake":
        return Shipped(_fake_ref(spec, rules), spec)
    if rules is not None:
        raise ConfigError(f"rules go with model 'fake', got model {str(model)!r}")
    bundle = open_bundle(model)
    check_fit(bundle, spec)
    name, _ = bundle.choose(runtime=spec.runtime, variant=spec.variant)
    manifest = one_variant(bundle.manifest, name)
    chosen = _choose_carrier(spark, manifest, carrier)
    ref = BundleRef(
        name=manifest.name, digest=manifest.digest, variant=name, carrier=chosen, cache_dir=cache_dir
    )
    return Shipped(replace(ref, location=_send(spark, bundle, manifest, chosen)), spec)


def shipped_model(
    spark: SparkSession, model: str | Path | Shipped, settings: Mapping[str, object]
) -> Shipped:
    """What `ship` returns, for a caller that has a model or has shipped one, and settings by name.

    Raises:
        ConfigError: an unknown setting (names the nearest), or settings for a model that is shipped already.
    """
    if isinstance(model, Shipped):
        if settings:
            raise ConfigError(f"the model is shipped already; give {', '.join(settings)} to ship() instead")
        return model
    return ship(spark, model, spec=from_dict(EngineSpec, settings, where="settings"))


def check_fit(bundle: Bundle, spec: EngineSpec) -> None:
    """Refuse settings that the model cannot follow, as its engine would, but before any job starts."""
    if spec.runtime == "fake":
        raise ConfigError("runtime 'fake' goes with model 'fake'")
    manifest, tokenizer = bundle.manifest, Tokenizer.from_file(bundle.file(bundle.manifest.tokenizer))
    spec.window(
        limit=manifest.max_tokens - tokenizer.n_special,
        default=manifest.window_tokens,
        overlap=manifest.overlap_tokens,
    )
    for label in spec.thresholds:
        if label not in bundle.scheme.types:
            raise ConfigError(
                f"threshold for {label!r}, but the model knows: {', '.join(bundle.scheme.types)}"
            )


def one_variant(manifest: Manifest, variant: str) -> Manifest:
    """The same manifest with one variant and only the files that it reads."""
    kept = manifest.variants[variant]
    names = dict.fromkeys((manifest.tokenizer, *kept.files))
    return replace(manifest, variants={variant: kept}, files={n: manifest.files[n] for n in names})


def pack(bundle: Bundle, manifest: Manifest) -> bytes:
    """A tar of the manifest and its files, uncompressed (weights do not shrink); equal for equal digests."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in [
            (MANIFEST_NAME, manifest.to_json().encode()),
            *((name, bundle.file(name).read_bytes()) for name in sorted(manifest.files)),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client, which has no JVM and no broadcast."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__)


def _fake_ref(spec: EngineSpec, rules: Mapping[str, str] | None) -> BundleRef:
    load_engine("fake", spec=spec, rules=rules)  # checks rules and settings; costs a millisecond
    pairs = () if rules is None else tuple(sorted(rules.items()))
    digest = hashlib.sha256(json.dumps(["fake", pairs]).encode()).hexdigest()
    return BundleRef(name="fake", digest=digest, rules=pairs)


def _choose_carrier(spark: SparkSession, manifest: Manifest, wanted: Carrier | Literal["auto"]) -> Carrier:
    connect = is_connect(spark)
    if wanted == "broadcast" and connect:
        raise ConfigError("Spark Connect has no broadcast; carrier can be 'artifact' or 'path' there")
    if wanted == "artifact" and not connect:
        raise ConfigError("artifacts need a Spark Connect session; carrier can be 'broadcast' or 'path' here")
    if wanted != "auto":
        return wanted
    if sum(entry.bytes for entry in manifest.files.values()) > MAX_CARRIED_BYTES:
        return "path"
    return "artifact" if connect else "broadcast"


def _send(
    spark: SparkSession, bundle: Bundle, manifest: Manifest, carrier: Carrier
) -> Broadcast[bytes] | str:
    if carrier == "path":
        return str(bundle.path.absolute())
    # Connect's session has an id of its own; pyspark's stubs know the classic one only.
    owner = getattr(spark, "session_id") if carrier == "artifact" else spark.sparkContext.applicationId  # noqa: B009
    key = (owner, manifest.digest)
    if key not in _SENT:
        if carrier == "broadcast":
            for stale in [k for k in _SENT if k[0] != owner]:  # their application is over
                del _SENT[stale]
            _SENT[key] = spark.sparkContext.broadcast(pack(bundle, manifest))
        else:
            _SENT[key] = _add_artifact(spark, f"spark-ner-{manifest.digest}.tar", pack(bundle, manifest))
    return _SENT[key]


def _add_artifact(spark: SparkSession, name: str, content: bytes) -> str:
    """Send a file by its name, under which `SparkFiles.get` finds it on a worker."""
    from pyspark.errors import PySparkException  # only a driver needs it

    with tempfile.TemporaryDirectory(prefix="spark-ner-") as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        try:
            spark.addArtifacts(str(file), file=True)
        except PySparkException as error:
            raise BundleError(
                f"the Spark Connect server took no artifact of {len(content) >> 20} MB: put the model where "
                "every worker sees it and ship it with carrier='path'"
            ) from error
    return name
