"""ONNX Runtime on CPU: the default runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from spark_ner.engine.runtimes import Batch
from spark_ner.errors import BundleError


class OnnxRuntime:
    """Runs an ONNX token classifier: input_ids, attention_mask and, where it has it, token_type_ids."""

    def __init__(self, file: Path, *, threads: int, precision: str) -> None:
        """Load the graph; BundleError where ONNX Runtime cannot."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Spin between the operators of one run, never between runs: an idle worker must leave its core alone.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - the library's errors share no public base
            raise BundleError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load {file.name}: {error}"
            ) from None
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._precision = precision

    @property
    def name(self) -> str:
        """`onnx/<precision>`."""
        return f"onnx/{self._precision}"

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        """Logits of every token, (n_windows, n_tokens, n_tags)."""
        feed = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.token_types}
        (logits,) = self._session.run(["logits"], {k: v for k, v in feed.items() if k in self._inputs})
        return np.asarray(logits, np.float32)
