"""TensorRT: from an ONNX graph, or from a torch.export program, to a plan."""
