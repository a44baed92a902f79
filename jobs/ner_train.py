r"""A tagger trained on labelled sets, by spark-submit.

    spark-submit [--master ...] jobs/ner_train.py --config conf/job/ner_train.toml --output runs/first

Flags are those of `spark-ner train` (--help lists them).

Run book:
  what it needs    the package with its train extra on driver and workers; `make horovod` for launcher
                   = "horovod"; an output folder that driver and workers see under one path
  killed           start the same command again: it goes on from the last checkpoint
  a lost process   ends the attempt; up to max_restarts attempts go on from the last checkpoint
  a hung process   is taken for lost after stall_s seconds without a step
  watch it         OUTPUT/log.jsonl: loss, tokens_per_s, wait_share (of the time, for batches), dev_f1
  loss no number   it stops before the step and names the texts (set:number)
  disk full        a warning, training goes on; the checkpoint before is kept
  exit code 2      a fault of the call or of the data, told in one sentence. 1: all else, see --debug
"""

from __future__ import annotations

import sys

from spark_ner.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
