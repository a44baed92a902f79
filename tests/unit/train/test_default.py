"""`make model`: the user's errors, the card, and how entities of two engines are compared."""

from spark_ner.compress.quantize import QuantizeConfig
from spark_ner.config import from_dict, load_toml
from spark_ner.train.card import card
from spark_ner.train.default import Measured, main
from spark_ner.train.evaluate import Report, Score
from tests.fixtures.marks import with_torch

pytestmark = with_torch


def setup_module() -> None:
    global TrainConfig
    from spark_ner.train.settings import TrainConfig


def measured(right: int) -> Measured:
    report = Report(
        Score(right, 100, 100), {label: Score(right, 100, 100) for label in ("PER", "ORG", "LOC")}
    )
    return Measured({"uner": {"sentence": report, "document": report}}, 1000.0 * right)


def test_absent_corpora_are_one_sentence_and_exit_code_2(tmp_path, capsys):
    assert main(["--data", str(tmp_path / "gone"), "--work", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "labelled data not found" in error
    assert "Traceback" not in error


def test_an_unknown_key_names_the_nearest(tmp_path, capsys):
    assert main(["--set", "epoch=3", "--work", str(tmp_path)]) == 2
    assert "unknown key 'epoch'; did you mean 'epochs'?" in capsys.readouterr().err


def test_the_shipped_config_is_the_default_one(root):
    assert from_dict(TrainConfig, load_toml(root / "conf/model/default.toml")) == TrainConfig()


def test_the_card_states_what_was_measured():
    reports = {"fp32": measured(70), "int8": measured(69)}
    text = card(TrainConfig(), reports, quantization=QuantizeConfig(method="mse"), minutes=42.3)
    assert "| Universal NER, English EWT test (web text) | document | 70.00 | 69.00 |" in text
    assert "| `epochs` | 4 |" in text
    assert "in 42 minutes" in text
    assert "static ranges by `mse`" in text


def test_f1_is_named_by_set_and_unit_for_the_manifest():
    assert measured(69).f1() == {"uner": 69.0, "uner-by-document": 69.0}
