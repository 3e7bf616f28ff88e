"""A custom runtime of MLServer around the same session, in its one worker process."""

from __future__ import annotations

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from gateway.servers.session import open_session


class OnnxModel(MLModel):
    """Decodes with MLServer's own numpy codec, runs, encodes with the same."""

    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        self._session = open_session(self.settings.parameters.uri, extra["threads"])
        self._names = [o.name for o in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        values = self._session.run(self._names, feed)
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output(n, v) for n, v in zip(self._names, values, strict=True)
            ],
        )
