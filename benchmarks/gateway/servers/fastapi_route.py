"""The model behind a decorated FastAPI route, as a tutorial has it: pydantic in and out."""

# No postponed annotations: the route's body type is chosen at run time.
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from gateway.servers.bare_asgi import serve
from gateway.servers.session import arguments, arrays_of, open_session


class FloatTensor(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class IntegerTensor(FloatTensor):
    data: list[int]  # type: ignore[assignment]


class FloatRequest(BaseModel):
    inputs: list[FloatTensor]


class IntegerRequest(BaseModel):
    inputs: list[IntegerTensor]


class InferResponse(BaseModel):
    model_name: str
    outputs: list[FloatTensor]


def build(session: Any, name: str, *, executor: bool) -> FastAPI:
    """Return the application; with ``executor`` the route is a plain def, run in a thread pool."""
    app = FastAPI()
    outputs = [o.name for o in session.get_outputs()]
    integers = session.get_inputs()[0].type == "tensor(int64)"
    body: Any = IntegerRequest if integers else FloatRequest

    def answer(request: Any) -> InferResponse:
        feed = arrays_of([tensor.__dict__ for tensor in request.inputs])
        values = session.run(outputs, feed)
        return InferResponse(
            model_name=name,
            outputs=[
                FloatTensor(name=n, shape=list(v.shape), datatype="FP32", data=v.ravel().tolist())
                for n, v in zip(outputs, values, strict=True)
            ],
        )

    path = f"/v2/models/{name}/infer"
    if executor:

        @app.post(path)
        def infer(request: body) -> InferResponse:
            return answer(request)

    else:

        @app.post(path)
        async def infer_on_loop(request: body) -> InferResponse:
            return answer(request)

    return app


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--executor", action="store_true", help="a plain def route")
    options = parser.parse_args()
    session = open_session(options.model, options.threads)
    serve(build(session, options.name, executor=options.executor), options.port)


if __name__ == "__main__":
    main()
