"""Check requests and answers against an OpenAPI 3.1 description.

It supports the part of JSON Schema that our description uses; any other keyword is an error.
"""

import json
import re
from typing import Any

_NOTES = frozenset({"title", "description", "default"})
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


class ApiDescription:
    """An OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def operations(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the operations by method and path."""
        return {
            (method.upper(), path): operation
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
            if method != "parameters"
        }

    def find(self, method: str, path: str) -> dict[str, Any] | None:
        for (known, template), operation in self.operations().items():
            pattern = re.sub(r"\{\w+\}", "[^/]+", template)
            if known == method and re.fullmatch(pattern, path):
                return operation
        return None

    def check_request(self, operation: dict[str, Any], query: dict[str, str], body: bytes) -> None:
        """Raise an AssertionError if a request is not as described."""
        parameters = {one["name"]: one["schema"] for one in operation.get("parameters", ())}
        for name, text in query.items():
            self.check(int(text), parameters[name])
        if "requestBody" in operation:
            self.check(json.loads(body), _schema(operation["requestBody"]))
        else:
            assert not body

    def check_answer(self, operation: dict[str, Any], status: int, body: bytes) -> None:
        answer = operation["responses"][str(status)]
        if "content" in answer:
            self.check(json.loads(body), _schema(answer))
        else:
            assert not body

    def check(self, value: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401
        for keyword, wanted in schema.items():
            if keyword not in _NOTES:
                self._check(value, keyword, wanted, schema)

    def _check(self, value: Any, keyword: str, wanted: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401, C901, PLR0912
        match keyword:
            case "$ref":
                self.check(value, self.resolve(wanted))
            case "type":
                assert isinstance(value, _TYPES[wanted]), (value, wanted)
                assert wanted == "boolean" or not isinstance(value, bool)
            case "properties":
                for name in value.keys() & wanted.keys():
                    self.check(value[name], wanted[name])
            case "required":
                assert set(wanted) <= value.keys(), (value, wanted)
            case "additionalProperties":
                assert wanted is False
                assert value.keys() <= schema["properties"].keys(), value
            case "prefixItems":
                for one, inner in zip(value, wanted, strict=False):
                    self.check(one, inner)
            case "items":
                rest = value[len(schema.get("prefixItems", ())) :]
                assert wanted is not False or not rest
                for one in rest:
                    self.check(one, wanted)
            case "anyOf":
                assert any(self.fits(value, one) for one in wanted), value
            case "enum":
                assert value in wanted, value
            case "minimum":
                assert value >= wanted
            case "maximum":
                assert value <= wanted
            case "minLength" | "minItems":
                assert len(value) >= wanted
            case "maxLength" | "maxItems":
                assert len(value) <= wanted
            case "pattern":
                assert re.search(wanted, value), value
            case _:
                raise AssertionError(f"unknown keyword {keyword}")

    def fits(self, value: Any, schema: dict[str, Any]) -> bool:  # noqa: ANN401
        try:
            self.check(value, schema)
        except AssertionError:
            return False
        return True

    def resolve(self, reference: str) -> Any:  # noqa: ANN401
        found: Any = self.document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        return found


def _schema(part: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = part["content"]["application/json"]["schema"]
    return schema
