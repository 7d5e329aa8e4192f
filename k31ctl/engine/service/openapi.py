"""What the service offers, as OpenAPI describes it."""

import json
from pathlib import Path
from typing import Any


def openapi_document(model: str, *, needs_key: bool) -> dict[str, Any]:
    """Return the description of the service for one model."""
    document: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_text())
    document["info"]["title"] += f": {model}"
    if not needs_key:
        del document["security"], document["components"]["securitySchemes"]
    return document
