r"""Named entities out of documents into a Delta table, by spark-submit.

    spark-submit [--master ...] --packages io.delta:delta-spark_4.2_2.13:4.4.0 jobs/ner_batch.py \
        --input docs/ --output tables/entities --id-col id --text-col text --keep lang

Flags are those of `spark-ner annotate` (--help lists them); settings may stand in a file: --config FILE.toml.

Run book:
  what it needs    the package on driver and workers (PYSPARK_PYTHON: their Python), and the Delta jars
  run it again     at any time, also after a kill: it goes on where it was; each document is in the table once
  nothing new      it says so, and adds nothing
  exit code 2      a fault of the call, told in one sentence; nothing was written. 1: all else, see --debug
  checkpoint lost  it refuses to start; --recover leaves out the documents that the table has
  file rewritten   it warns and does not read it again: give new contents a new name
  another model    goes on with the same table; runs.model_digest and runs.batch_id say which rows are whose
  too slow         OUTPUT_runs: longest_task_s against median_task_s (skew), padding_share, forward_s
  memory           runs.memory_mb is a Python worker's peak: give executors memoryOverhead of cores times that
"""

from __future__ import annotations

import sys

from spark_ner.cli import main

if __name__ == "__main__":
    sys.exit(main(["annotate", *sys.argv[1:]]))
