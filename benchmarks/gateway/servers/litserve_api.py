"""LitServe around the same session; one API process, one worker process, batches padded."""

from __future__ import annotations

from typing import Any

import litserve

from gateway.servers.session import arguments, arrays_of, open_session, padded


class Api(litserve.LitAPI):
    """Open Inference Protocol JSON; a batch is padded to its longest item."""

    def __init__(self, model: str, name: str, threads: int, **options: Any) -> None:
        super().__init__(**options)
        self._path, self._name, self._threads = model, name, threads

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's own signature
        self._session = open_session(self._path, self._threads)
        self._outputs = [o.name for o in self._session.get_outputs()]

    def decode_request(self, request):  # untyped: LitServe would make a schema of it
        return arrays_of(request["inputs"])

    def batch(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        return padded(inputs)

    def predict(self, x: dict[str, Any]) -> list[Any]:
        return self._session.run(self._outputs, x)

    def unbatch(self, output: list[Any]) -> list[list[Any]]:
        return [[v[row : row + 1] for v in output] for row in range(len(output[0]))]

    def encode_response(self, output: list[Any]) -> dict[str, Any]:
        return {
            "model_name": self._name,
            "outputs": [
                {"name": n, "datatype": "FP32", "shape": list(v.shape), "data": v.ravel().tolist()}
                for n, v in zip(self._outputs, output, strict=True)
            ],
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--batch", type=int, default=1, help="most items in a batch")
    parser.add_argument("--delay-ms", type=float, default=0, help="how long a batch may gather")
    parser.add_argument("--fast-queue", action="store_true", help="answers by ZeroMQ")
    options = parser.parse_args()
    api = Api(
        options.model,
        options.name,
        options.threads,
        max_batch_size=options.batch,
        batch_timeout=options.delay_ms / 1000,
        api_path=f"/v2/models/{options.name}/infer",
    )
    server = litserve.LitServer(
        api, accelerator="cpu", devices=1, workers_per_device=1, fast_queue=options.fast_queue
    )
    server.run(
        host="127.0.0.1",
        port=options.port,
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )


if __name__ == "__main__":
    main()
