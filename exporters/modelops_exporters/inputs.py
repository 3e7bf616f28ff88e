"""Where the inputs of a comparison come from, for each kind of source."""

from __future__ import annotations

from modelops.parity.inputs import Arrays, RandomInputs
from modelops.signature import Signature
from modelops_exporters.prepared import Prepared


class PreparedInputs:
    """Makes inputs as the prepared model's source knows them, else by its signature."""

    def __init__(self, prepared: Prepared, signature: Signature, seed: int) -> None:
        self._prepared = prepared
        self._by_signature = RandomInputs(signature, seed)

    def random(self, dims: dict[str, int], *, padded: bool = False) -> Arrays:
        """Return random inputs at the sizes ``dims``; the same call gives the same values."""
        if self._prepared.random is not None:
            return self._prepared.random({**self._prepared.fixed, **dims}, padded)
        return self._by_signature.make(dims, padded=padded)

    def realistic(self, dims: dict[str, int]) -> Arrays | None:
        """Return inputs such as users send, or None where the source knows of none."""
        # Sentences come in lengths of their own, which a fixed dim does not take.
        return None if self._prepared.fixed else self._prepared.realistic(dims)
