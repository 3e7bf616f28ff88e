"""Requests of every shape, right and wrong, and clients that leave in the middle."""

from __future__ import annotations

import json
import random

from gateway.bodies import Body, binary_body, json_body, rows
from gateway.connection import Connection

_WIDTH = 16
_VARIANTS = 12


def mixture() -> list[Body]:
    """Rows 1 to 8, JSON and binary, and one in twenty malformed; in a fixed random order."""
    good = [
        form(rows(count, _WIDTH, seed))
        for count in range(1, 9)
        for seed in range(_VARIANTS)
        for form in (json_body, binary_body)
    ]
    bad = [body for _ in range(2) for body in malformed()]
    both = good + bad
    random.Random(7).shuffle(both)
    return both


def malformed() -> list[Body]:
    """Bodies that a server must answer with 400."""
    right = json.loads(json_body(rows(1, _WIDTH)).data)
    tensor = right["inputs"][0]

    def changed(**fields: object) -> Body:
        return Body(json.dumps({"inputs": [{**tensor, **fields}]}).encode())

    binary = binary_body(rows(2, _WIDTH))
    return [
        Body(b'{"inputs": [{"name": "x", '),
        changed(datatype="INT64"),
        changed(shape=[3, _WIDTH]),
        changed(name="unknown"),
        Body(binary.data[:-4], binary.json_length),
    ]


def leave(url: str, path: str, times: int) -> None:
    """Leave ``times`` times: in the headers, in the body, before the answer, in turn."""
    body = json_body(rows(8, _WIDTH))
    for number in range(times):
        with Connection(url) as connection:
            head = connection.head(path, body)
            whole = head + body.data
            cut = (len(head) // 2, len(head) + len(body.data) // 2, len(whole))[number % 3]
            connection.send(whole[:cut])
