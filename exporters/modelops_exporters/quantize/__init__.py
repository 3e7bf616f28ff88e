"""Making a written ONNX model smaller or narrower: float types, int8 and int4."""

from modelops_exporters.quantize.convert import Converted, convert_precision
from modelops_exporters.quantize.search import Aim

__all__ = ["Aim", "Converted", "convert_precision"]
