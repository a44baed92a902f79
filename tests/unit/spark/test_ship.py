from __future__ import annotations

import dataclasses
import io
import pickle
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ner.bundle import Bundle
from spark_ner.engine import EngineSpec
from spark_ner.errors import BundleError, ConfigError, PathError
from spark_ner.spark import ship as shipping
from spark_ner.spark.ship import one_variant, pack, ship, shipped_model
from tests.fixtures.tiny import tiny_bundle


class Session:
    """As much of a classic session as shipping uses."""

    def __init__(self, application: str) -> None:
        self.sent: list[bytes] = []
        self.sparkContext = SimpleNamespace(applicationId=application, broadcast=self.broadcast)

    def broadcast(self, content: bytes) -> SimpleNamespace:
        self.sent.append(content)
        return SimpleNamespace(value=content)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    return Session(str(tmp_path))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return tiny_bundle(tmp_path / "tiny")


def test_a_model_is_sent_once_an_application(session: Any, bundle: Bundle) -> None:
    first = ship(session, bundle.path, spec=EngineSpec(batch_tokens=256))
    second = ship(session, bundle.path)
    assert len(session.sent) == 1
    assert first.ref == second.ref
    assert first.ref.location is second.ref.location
    assert (first.ref.carrier, first.ref.variant, first.ref.name) == ("broadcast", "int8", "tiny")
    assert (first.spec.batch_tokens, second.spec.batch_tokens) == (256, 512)
    later: Any = Session("another application")
    ship(later, bundle.path)
    assert len(later.sent) == 1
    assert all(key[0] == "another application" for key in shipping._SENT)


def test_the_tar_holds_one_variant_and_is_the_same_every_time(bundle: Bundle) -> None:
    two = dataclasses.replace(
        bundle.manifest,
        variants={
            **bundle.manifest.variants,
            "fp32": dataclasses.replace(bundle.manifest.variants["int8"], files=()),
        },
    )
    manifest = one_variant(two, "int8")
    assert manifest == bundle.manifest
    assert one_variant(two, "fp32").files.keys() == {"tokenizer.json"}
    content = pack(bundle, manifest)
    assert content == pack(bundle, manifest)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert tar.getnames() == ["manifest.json", "model.onnx", "tokenizer.json"]


def test_a_large_model_goes_by_path(session: Any, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MAX_CARRIED_BYTES", 1_000)
    ref = ship(session, bundle.path).ref
    assert (ref.carrier, ref.location, session.sent) == ("path", str(bundle.path), [])
    assert ship(session, bundle.path, carrier="broadcast").ref.carrier == "broadcast"


def test_the_reference_to_a_fake_holds_its_rules_and_no_files(session: Any) -> None:
    shipped = ship(session, "fake", rules={"Turin": "B-LOC"})
    assert (shipped.ref.carrier, shipped.ref.rules, session.sent) == (None, (("Turin", "B-LOC"),), [])
    assert shipped.ref.digest != ship(session, "fake").ref.digest
    assert pickle.loads(pickle.dumps(shipped)) == shipped
    assert len(pickle.dumps(shipped)) < 2_000


def test_what_does_not_fit_is_refused_before_anything_is_sent(session: Any, bundle: Bundle) -> None:
    path = str(bundle.path)
    for wanted, message in [
        (lambda: ship(session, path, spec=EngineSpec(window_tokens=127)), "the model takes at most 126"),
        (lambda: ship(session, path, spec=EngineSpec(overlap_tokens=126)), "can be at most 125"),
        (lambda: ship(session, path, spec=EngineSpec(thresholds={"PER": 0.5})), "the model knows: LOC"),
        (lambda: ship(session, path, spec=EngineSpec(runtime="fake")), "goes with model 'fake'"),
        (lambda: ship(session, path, carrier="artifact"), "carrier can be 'broadcast' or 'path' here"),
        (lambda: ship(session, path, rules={"x": "O"}), "rules go with model 'fake'"),
        (lambda: shipped_model(session, path, {"batch_tokns": 3}), "did you mean 'batch_tokens'"),
        (
            lambda: shipped_model(session, ship(session, "fake"), {"threads": 3}),
            "shipped already; give threads",
        ),
    ]:
        with pytest.raises(ConfigError) as raised:
            wanted()
        assert message in str(raised.value)
    assert session.sent == []


def test_an_absent_or_changed_model_is_refused_on_the_driver(session: Any, bundle: Bundle) -> None:
    with pytest.raises(PathError, match="neither a shipped model"):
        ship(session, "no-such-model")
    weights = bundle.file("model.onnx")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(BundleError, match="was changed"):
        ship(session, bundle.path)


def test_connect_sessions_are_told_by_their_type() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    heir = type("DatabricksSession", (type(remote),), {"__module__": "databricks.connect"})()
    assert [shipping.is_connect(s) for s in (remote, heir, Session("x"))] == [True, True, False]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no broadcast"):
        shipping._choose_carrier(remote, None, "broadcast")  # type: ignore[arg-type]
