"""Real documents on their way to a reader, damaged."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from tests.fuzz.hostile import Choose, damaged_document, damaged_text, one, spoilt
from tests.fuzz.real_documents import LAUNCHES, pictures, shard

Files = Callable[[Choose], bytes]


def documents(seeds: Sequence[Any]) -> Files:
    """Damaged documents."""
    return lambda choose: damaged_document(choose, seeds)


def texts(seeds: Sequence[bytes]) -> Files:
    """Damaged texts."""
    return lambda choose: damaged_text(choose, seeds)


def either(*kinds: Files) -> Files:
    """Files of one of these kinds."""
    return lambda choose: kinds[choose(len(kinds))](choose)


def within(files: Files, before: bytes, after: bytes) -> Files:
    """Damaged files with something before and after each."""
    return lambda choose: before + files(choose) + after


def lines(rows: list[Any]) -> Files:
    """JSON lines, of which one is damaged."""
    whole = b"\n".join(json.dumps(row).encode() for row in rows)
    return either(within(documents(rows), whole + b"\n", b"\n"), texts([whole]))


def launches(*endings: str) -> Files:
    return texts([p.read_bytes() for p in sorted(LAUNCHES.iterdir()) if p.name.endswith(endings)])


def yaml_launches() -> Files:
    found = (list(yaml.safe_load_all(p.read_text())) for p in sorted(LAUNCHES.glob("*.yaml")))
    return documents([each[0] for each in found if len(each) == 1])


def shards() -> Files:
    """A shard whose header is damaged as a document, whose length is wrong, or whose bytes are."""
    whole = shard()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]

    def damaged(choose: Choose) -> bytes:
        if not choose(4):
            return spoilt(choose, whole)
        text = damaged_document(choose, [header])
        size = one(choose, [len(text)] * 8 + [0, 2**63, 2**64 - 1, len(text) + 1, 100 << 20])
        return size.to_bytes(8, "little") + text + data

    return damaged


def image_files(choose: Choose) -> bytes:
    return spoilt(choose, one(choose, pictures()))
