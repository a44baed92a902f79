"""PyTorch: any Hugging Face token-classification directory with safetensors, as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spark_ner.engine.runtimes import Batch
from spark_ner.errors import BundleError, DependencyError


class TorchRuntime:
    """Runs AutoModelForTokenClassification; remote code and pickled weights are never loaded."""

    def __init__(self, directory: Path, *, threads: int, device: str, letter_case: bool) -> None:
        """Load the model; DependencyError without torch, BundleError where transformers cannot read it."""
        try:
            import torch
            from safetensors import SafetensorError
            from transformers import AutoModelForTokenClassification
        except ImportError as error:
            raise DependencyError(
                f"model {directory} needs PyTorch and transformers ({error.name} is missing): "
                "pip install 'spark-ner[torch]'"
            ) from None
        if device == "cpu":
            torch.set_num_threads(threads)
        try:
            model, loading = AutoModelForTokenClassification.from_pretrained(
                str(directory),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BundleError(f"transformers cannot load {directory}: {reason}") from None
        if missing := sorted(loading["missing_keys"]):
            # transformers would fill them with random numbers and go on.
            raise BundleError(
                f"the weights of {directory} lack {', '.join(missing[:3])}: no trained token classifier"
            )
        self._torch, self._device, self._letter_case = torch, torch.device(device), letter_case
        self._model = model.eval().to(self._device)

    @property
    def name(self) -> str:
        """`torch/<dtype>`."""
        return f"torch/{str(self._model.dtype).removeprefix('torch.')}"

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        """Logits of every token, (n_windows, n_tokens, n_tags)."""
        torch = self._torch
        feed = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if self._letter_case:
            feed["token_type_ids"] = batch.token_types
        with torch.inference_mode():
            logits = self._model(**{k: torch.from_numpy(v).to(self._device) for k, v in feed.items()}).logits
        return np.asarray(logits.float().cpu().numpy(), np.float32)
