"""From a PyTorch tagger to small, fast variants: export to ONNX, static INT8."""
