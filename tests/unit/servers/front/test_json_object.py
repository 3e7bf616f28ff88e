"""Every route reads the object that its body is in one place, and says the same of what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from json_requests import FLOATS

from modelops.errors import RequestError
from modelops_servers.front.embeddings_codec import parse
from modelops_servers.front.json_object import json_object
from modelops_servers.front.oip_codec import decode_request
from modelops_servers.front.status import FieldError


def infer(body: bytes) -> Any:
    return decode_request(body, FLOATS)


@pytest.mark.parametrize("read", [json_object, infer, parse])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'"text"', "not an object"),
    ],
)
def test_what_is_no_object_is_said_to_be_none(
    read: Callable[[bytes], Any], body: bytes, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        read(body)
    assert (caught.value.__cause__ is not None) == (said == "is not JSON")
    if read is parse:
        assert isinstance(caught.value, FieldError)
        assert caught.value.param == "body"


def test_an_object_is_returned_whatever_kind_of_bytes_it_came_as() -> None:
    assert json_object(b'{"a": 1}') == json_object(memoryview(b'{"a": 1}')) == {"a": 1}
