"""Making a written ONNX model smaller or narrower: float types, int8 and int4."""

from modelops_exporters.quantize.convert import Converted, convert_precision

__all__ = ["Converted", "convert_precision"]
