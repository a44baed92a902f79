"""How fast is the job, against the engine alone and the usual recipe? One run, same text, same weights.

    python benchmarks/throughput.py [--data ../shared/data] [--words 100000] [--rounds 1] [--quick]

(a) the engine in one process with two threads; (b) the Spark job on local[2] into a Delta table, warm;
(c) the recipe of Databricks' guide, honestly set: a Hugging Face token-classification pipeline in fp32 in an
iterator pandas UDF, aggregation_strategy="first", a stride so that nothing is skipped, one torch thread a
task, the best of batch 1, 8 and 32, into a Delta table as well. Its weights are the shipped model's, in fp32.
Words are what blanks divide. In each round all three run, one after the other; figures are the medians of
the rounds, ratios the medians of the rounds' ratios. Run it on a quiet machine: a busy core falsifies every
ratio.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PIPELINE_BATCHES = (1, 8, 32)
SAMPLE_WORDS = 12_000  # on which the recipe's best batch size is found, and which warm the job up
WARM_RUNS = 3


def main() -> None:
    """Run the parts one after the other and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument(
        "--words", type=int, default=100_000, help="least number of words of each kind of text"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often all three are measured")
    parser.add_argument("--quick", action="store_true", help="5,000 words: checks that the program runs")
    parser.add_argument("--json", type=Path, default=ROOT / ".reports" / "throughput.json")
    parser.add_argument("--part", choices=("startup", "big-document"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part is not None:
        print(json.dumps(startup() if arguments.part == "startup" else big_document()))
        return
    n_words = 5_000 if arguments.quick else arguments.words
    figures: dict[str, Any] = {
        "machine": machine(),
        "startup": part("startup"),
        "memory": part("big-document"),
    }
    with tempfile.TemporaryDirectory() as folder:
        texts = corpora(arguments.data, n_words)
        figures |= throughput(Path(folder), texts, arguments.data, rounds=arguments.rounds)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(table(figures))
    print(f"\nwritten: {arguments.json}")


def machine() -> dict[str, Any]:
    """Cores and the CPU features that decide INT8's speed."""
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "asimddp")
    info = Path("/proc/cpuinfo")
    flags = (
        set(re.findall(r"^(?:flags|Features)\s*:(.*)$", info.read_text(), re.MULTILINE)[0].split())
        if info.exists()
        else set()
    )
    features = [f for f in wanted if f in flags]
    return {
        "cores": os.cpu_count(),
        "cpu": platform.machine(),
        "features": features,
        "load": os.getloadavg()[0],
    }


def part(name: str) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--part", name], check=True, capture_output=True, text=True
    )
    parsed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parsed


def startup() -> dict[str, Any]:
    """Seconds from a fresh interpreter to the first batch's entities, as a worker starts."""
    began = time.perf_counter()
    import pyarrow as pa

    from spark_ner.engine import EngineSpec, load_engine

    engine = load_engine("default", spec=EngineSpec(threads=1))
    next(iter(engine.annotate_stream([pa.array(["Ada Lovelace met Charles Babbage in London."] * 16)])))
    return {
        "first_batch_s": round(time.perf_counter() - began, 3),
        "torch_imported": "torch" in sys.modules,
        "memory_mb": peak_mb(),
    }


def big_document() -> dict[str, Any]:
    """Memory that one document of 10 MB adds to a warm engine."""
    from spark_ner.engine import EngineSpec, load_engine

    shipped = load_engine("default", spec=EngineSpec(threads=1))
    shipped.annotate(["Ada Lovelace met Charles Babbage in London. " * 2_000])
    before = peak_mb()
    text = "Ada Lovelace met Charles Babbage in London, and wrote to Acme. " * (10_000_000 // 63)
    shipped.runtime = _Constant(shipped.runtime, len(shipped.scheme.tags))
    entities = shipped.annotate([text])
    return {"added_mb": round(peak_mb() - before, 1), "characters": len(text), "documents": len(entities)}


class _Constant:
    """The real runtime for one batch in twenty, O for the rest: its memory in a twentieth of the time."""

    def __init__(self, runtime: Any, n_tags: int) -> None:
        self.name, self._runtime, self._n_tags, self._n = runtime.name, runtime, n_tags, 0

    def scores(self, batch: Any) -> Any:
        import numpy as np

        self._n += 1
        if self._n % 20 == 1:
            return self._runtime.scores(batch)
        scores = np.zeros((*batch.ids.shape, self._n_tags), np.float32)
        scores[..., 0] = 1
        return scores


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


# --- text -----------------------------------------------------------------------------------------


def corpora(data: Path, n_words: int) -> dict[str, list[str]]:
    """Documents of 100-2,000 words, and one-line texts; from the shared corpora, else the examples."""
    documents = [t for t in raw_documents(data) if 100 <= len(t.split()) <= 2_000]
    lines = [
        line.strip() for t in [*raw_lines(data), *documents] for line in re.split(r"(?<=[.!?])\s+|\n", t)
    ]
    lines = [line for line in lines if 3 <= len(line.split()) <= 60]
    return {"documents": fill(documents, n_words), "lines": fill(lines, n_words)}


def raw_documents(data: Path) -> Iterator[str]:
    """News, biographies, interviews, speeches: whole texts."""
    found = False
    for name in ("text-gum/gum_docs.jsonl.gz", "text-speeches/inaugural.jsonl.gz"):
        if (data / name).exists():
            found = True
            with gzip.open(data / name, "rt", encoding="utf-8") as stream:
                yield from (json.loads(line)["text"] for line in stream)
    if not found:
        for line in (ROOT / "examples" / "documents.jsonl").read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["text"] or ""


def raw_lines(data: Path) -> Iterator[str]:
    """Questions and comments, a line each."""
    for name in ("stackoverflow.txt.gz", "youtube.tok.txt.gz", "reddit.tok.txt.gz"):
        if (data / "text-messy" / name).exists():
            with gzip.open(data / "text-messy" / name, "rt", encoding="utf-8") as stream:
                yield from stream


def fill(texts: list[str], n_words: int) -> list[str]:
    """Texts from the front until there are enough words, going round again where there are too few."""
    chosen: list[str] = []
    count = 0
    while count < n_words:
        text = texts[len(chosen) % len(texts)]
        chosen.append(text)
        count += len(text.split())
    return chosen


def words_in(texts: list[str]) -> int:
    """Words that blanks divide."""
    return sum(len(t.split()) for t in texts)


# --- the three ways -------------------------------------------------------------------------------


def throughput(folder: Path, texts: dict[str, list[str]], data: Path, *, rounds: int) -> dict[str, Any]:
    """Words/s of (a), (b) and (c) on each kind of text, and F1 of (b) and (c)."""
    from spark_ner.compress.restore import restore_torch

    hugging_face = folder / "fp32"
    restore_torch("default", hugging_face)
    sample = write_input(folder / "sample", fill(texts["documents"], SAMPLE_WORDS))
    sources = {kind: write_input(folder / kind, chosen) for kind, chosen in texts.items()}
    seen: dict[str, dict[str, list[dict[str, Any]]]] = {
        kind: {"engine": [], "job": [], "pipeline": []} for kind in texts
    }
    by_batch: dict[str, dict[int, int]] = {}
    for number in range(rounds):
        with local_session() as spark:
            for warm in range(WARM_RUNS):
                job_rate(spark, sample, folder / f"warm{number}{warm}", SAMPLE_WORDS)
            for kind, chosen in texts.items():
                target = folder / f"{kind}_job{number}"
                seen[kind]["engine"].append(engine_rate(chosen))
                seen[kind]["job"].append(job_rate(spark, sources[kind], target, words_in(chosen)))
                progress(number, kind, seen[kind])
        with local_session() as spark:  # new workers: the job's must not carry the recipe's memory
            for kind, chosen in texts.items():
                target = folder / f"{kind}_pipe{number}"
                if kind not in by_batch:
                    by_batch[kind] = batch_rates(spark, chosen, hugging_face, target)
                best = max(by_batch[kind], key=by_batch[kind].__getitem__)
                rate = recipe(spark, chosen, hugging_face, target / "all", best)
                seen[kind]["pipeline"].append({**rate, "batch": best, "by_batch": by_batch[kind]})
                progress(number, kind, seen[kind])
    figures: dict[str, Any] = {
        kind: {"texts": len(texts[kind]), "words": words_in(texts[kind])} | summary(ways)
        for kind, ways in seen.items()
    }
    figures["f1"] = accuracy(data, hugging_face)
    return figures


@contextmanager
def local_session() -> Iterator[Any]:
    """A session on two cores with workers of its own."""
    from spark_ner.spark.session import build_session

    spark = build_session(
        "throughput", conf={"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    )
    try:
        yield spark
    finally:
        spark.stop()


def progress(number: int, kind: str, ways: dict[str, list[dict[str, Any]]]) -> None:
    """One line about the newest figures, for whoever waits."""
    newest = {way: rates[-1]["words_per_s"] for way, rates in ways.items() if len(rates) > number}
    print(f"round {number + 1}, {kind}: {newest}", file=sys.stderr, flush=True)


def summary(ways: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Of each way the round with the median rate, all rates, and the medians of the rounds' ratios."""
    rates = {way: [r["words_per_s"] for r in found] for way, found in ways.items()}
    chosen = {
        way: sorted(found, key=lambda r: r["words_per_s"])[len(found) // 2] | {"by_round": rates[way]}
        for way, found in ways.items()
    }
    ratios = {
        f"job/{other}": round(median(b / x for b, x in zip(rates["job"], rates[other], strict=True)), 3)
        for other in ("engine", "pipeline")
    }
    return {**chosen, "ratios": ratios}


def write_input(target: Path, texts: list[str]) -> Path:
    """The texts as one Parquet file with an id."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target.mkdir()
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), target / "part-0.parquet")
    return target


def engine_rate(texts: list[str]) -> dict[str, Any]:
    """(a) one process, two threads, arrays of 512 texts; the model is loaded and warm."""
    import pyarrow as pa

    from spark_ner.engine import EngineSpec, load_engine

    engine = load_engine("default", spec=EngineSpec(threads=2))
    engine.annotate(texts[:20])
    before = engine.stats.snapshot()
    began = time.perf_counter()
    for _ in engine.annotate_stream(pa.array(texts[i : i + 512]) for i in range(0, len(texts), 512)):
        pass
    seconds = time.perf_counter() - began
    spent = {k: v - before[k] for k, v in engine.stats.snapshot().items()}
    return {
        "words_per_s": round(words_in(texts) / seconds),
        "tokens_per_s": round(spent["tokens"] / seconds),
        "padding_share": round(1 - spent["tokens"] / spent["padded_tokens"], 4),
        "forward_share": round(spent["forward_s"] / seconds, 3),
    }


def job_rate(spark: Any, source: Path, target: Path, n_words: int) -> dict[str, Any]:
    """(b) the job's own function, Parquet to Delta, into a new table."""
    from spark_ner.spark.job import run
    from spark_ner.spark.settings import JobConfig

    config = JobConfig(
        input=str(source),
        output=str(target / "entities"),
        mode="once",
        run_id=target.name,
        id_col="id",
        model="default",
    )
    began = time.perf_counter()
    report = run(spark, config)
    seconds = time.perf_counter() - began
    (row,) = report.rows
    return {
        "words_per_s": round(n_words / seconds),
        "worker_memory_mb": round(row.memory_mb or 0, 1),
        "seconds": round(seconds, 1),
        "tasks": row.n_tasks,
        "longest_task_s": round(row.longest_task_s or 0, 2),
        "median_task_s": round(row.median_task_s or 0, 2),
        "task_s": round(row.task_s or 0, 2),
        "plan_s": round(row.plan_s or 0, 2),
    }


def batch_rates(spark: Any, texts: list[str], model: Path, target: Path) -> dict[int, int]:
    """The recipe's words/s on a sample, by batch size."""
    sample = fill(texts, SAMPLE_WORDS)
    return {
        b: recipe(spark, sample, model, target / f"sample{b}", b)["words_per_s"] for b in PIPELINE_BATCHES
    }


def recipe(spark: Any, texts: list[str], model: Path, target: Path, batch: int) -> dict[str, Any]:
    """Run the pipeline UDF over the texts into Delta; workers are warmed by a first pass over a few rows."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    directory = str(model)
    schema = "array<struct<start:int,end:int,label:string,score:float,memory:float>>"

    def annotate(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import resource

        pipeline = load_pipeline(directory)
        for series in batches:
            results = pipeline(series.tolist(), batch_size=batch)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            yield pd.Series(
                [
                    [
                        {
                            "start": e["start"],
                            "end": e["end"],
                            "label": e["entity_group"],
                            "score": float(e["score"]),
                            "memory": memory,
                        }
                        for e in entities
                    ]
                    for entities in results
                ]
            )

    from pyspark.sql.pandas.functions import PandasUDFType

    udf = pandas_udf(annotate, schema, PandasUDFType.SCALAR_ITER)
    for name, rows in (("warm", texts[:4]), ("measured", texts)):
        frame = spark.createDataFrame(pd.DataFrame({"id": range(len(rows)), "text": rows})).repartition(2)
        began = time.perf_counter()
        frame.withColumn("entities", udf("text")).write.format("delta").mode("overwrite").save(
            str(target / name)
        )
        seconds = time.perf_counter() - began
    memory = (
        spark.read.format("delta")
        .load(str(target / "measured"))
        .selectExpr("max(array_max(entities.memory))")
        .first()[0]
    )
    return {"words_per_s": round(words_in(texts) / seconds), "worker_memory_mb": round(memory or 0, 1)}


def load_pipeline(directory: str) -> Any:
    """A pipeline once a worker process, with one thread and a stride, so that it reads all of a text."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

    cached = globals().setdefault("_PIPELINES", {})
    if directory not in cached:
        torch.set_num_threads(1)
        tokenizer = AutoTokenizer.from_pretrained(directory, model_max_length=512)
        model = AutoModelForTokenClassification.from_pretrained(directory)
        cached[directory] = pipeline(
            "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first", stride=64
        )
    return cached[directory]


# --- accuracy and print ---------------------------------------------------------------------------


def accuracy(data: Path, model: Path) -> dict[str, Any]:
    """Strict span F1 (PER, ORG, LOC) of engine and recipe on UNER English EWT test, by document."""
    source = data / "uner-en-ewt" / "en_ewt-ud-test.iob2.gz"
    if not source.exists():
        return {}
    from spark_ner.engine import load_engine
    from spark_ner.train.data import Span
    from spark_ner.train.evaluate import gold_sets, score

    gold = next(s for s in gold_sets(data) if s.name == "uner")
    documents = gold.texts["document"]
    texts = [d.text for d in documents]
    pipeline = load_pipeline(str(model))
    recipe_spans = [
        [Span(e["start"], e["end"], e["entity_group"]) for e in row] for row in pipeline(texts, batch_size=1)
    ]
    reports = {
        "job": score(load_engine("default").annotate(texts), documents),
        "pipeline": score(recipe_spans, documents),
    }
    return {
        "set": "UNER English EWT test, by document, one sentence a line",
        **{k: r.overall.to_dict() for k, r in reports.items()},
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as a person reads them."""
    lines = [
        f"machine: {figures['machine']}",
        f"start-up: {figures['startup']}",
        f"10 MB document: {figures['memory']}",
    ]
    head = f"{'text':12}{'(a) engine':>12}{'(b) job':>10}{'(c) recipe':>12}{'b/a':>7}{'b/c':>7}{'padding':>9}"
    lines += ["", "words/s", head]
    for kind in ("documents", "lines"):
        row = figures[kind]
        a, b, c = (row[k]["words_per_s"] for k in ("engine", "job", "pipeline"))
        lines.append(
            f"{kind:12}{a:>12}{b:>10}{c:>12}{row['ratios']['job/engine']:>7.2f}"
            f"{row['ratios']['job/pipeline']:>7.2f}{row['engine']['padding_share']:>9.1%}"
        )
        lines.append(
            f"{'':12}worker memory MB: job {row['job']['worker_memory_mb']}, "
            f"recipe {row['pipeline']['worker_memory_mb']}; recipe's batch {row['pipeline']['batch']}"
        )
    lines.append(f"F1: {figures['f1']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
