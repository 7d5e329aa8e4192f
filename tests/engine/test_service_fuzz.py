"""Requests made at random from the service's own description: every answer keeps to it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k31ctl.core.chat_format.system_notes import EFFORTS
from k31ctl.engine.service.openapi import openapi_document
from tests.engine.scripted import ScriptedGenerator, gauge, ids_of, served, small_model

DOCUMENT = openapi_document("tiny", needs_key=False)
SPELT = (
    "R<|close|>think<|sep|><|open|>response<|sep|>A<|close|>response<|sep|>"
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


def valid(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the description allows, mostly; the service judges the rest."""
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if "oneOf" in schema:
        return st.one_of([valid(one) for one in schema["oneOf"]])
    kinds = schema.get("type", "object")
    listed = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of([of_kind(schema, kind) for kind in listed])


def of_kind(schema: dict[str, Any], kind: str) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum", 0), schema.get("maximum", 600)
    plain = {
        "string": st.text(max_size=20),
        "integer": st.integers(int(low), int(high)),
        "number": st.floats(low, high),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    if kind == "array":
        items = valid(schema["items"]) if "items" in schema else ANY
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)
    return plain[kind] if kind in plain else fields(schema)


def fields(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not properties:
        return st.dictionaries(st.text(max_size=9), ANY, max_size=3)
    made = {name: valid(one) for name, one in properties.items()}
    return st.fixed_dictionaries(
        {name: made[name] for name in required},
        optional={name: made[name] for name in made if name not in required},
    )


def bodies(path: str) -> st.SearchStrategy[Any]:
    """Valid bodies, bodies with one field replaced, and anything at all."""
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schema = DOCUMENT["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    good = fields({**schema, "properties": {**schema["properties"], "model": {"const": "tiny"}}})
    names = st.sampled_from(sorted(schema["properties"]))
    spoilt = st.builds(lambda body, name, value: {**body, name: value}, good, names, ANY)
    return good | spoilt | ANY


POSTS = sorted(path for path, entry in DOCUMENT["paths"].items() if "post" in entry)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    model = small_model(tmp_path_factory.mktemp("checkpoint"))
    generator = ScriptedGenerator(lambda _: ids_of(model.tokenizer, SPELT))
    with served(model, generator) as url, httpx.Client(base_url=url, timeout=60) as made:
        yield made


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_answer_is_one_that_is_described(
    client: httpx.Client, path: str, data: st.DataObject
) -> None:
    body = json.dumps(data.draw(bodies(path)))
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    described = DOCUMENT["paths"][path]["post"]["responses"]
    assert str(response.status_code) in described, response.text
    assert response.status_code < 500, response.text
    kind = response.headers["content-type"].partition(";")[0]
    assert kind in described[str(response.status_code)]["content"]
    if kind == "application/json":
        schema = described[str(response.status_code)]["content"][kind]["schema"]
        jsonschema.validate(response.json(), {**schema, "components": DOCUMENT["components"]})
    else:
        assert response.text.endswith("data: [DONE]\n\n")
    assert gauge(str(client.base_url).rstrip("/"), "num_requests_open") == 0


def test_the_description_names_the_efforts_of_the_format() -> None:
    fields = DOCUMENT["components"]["schemas"]["ChatRequest"]["properties"]
    assert tuple(fields["reasoning_effort"]["enum"]) == EFFORTS


def test_the_description_is_valid_openapi() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    names = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    used = [piece.split('"')[0] for piece in json.dumps(DOCUMENT).split('"$ref": "')[1:]]
    assert set(used) <= names
