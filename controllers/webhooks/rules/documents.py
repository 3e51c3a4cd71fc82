"""Objects of a request as structs, refused where they do not have their kind's form."""

from typing import Any, TypeVar

import msgspec

from controllers.webhooks.review import Document, RefusedError

T = TypeVar("T")


def converted(document: Document | None, kind: type[T]) -> T:
    """Return a document as a struct. Raises RefusedError, code 400, with the path of the field that does not fit."""
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RefusedError(f"the object is no {kind.__name__}: {error}", 400) from error


def copied(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def child(document: Document, name: str) -> Document:
    """Return the map in a field, made and put there where it is absent."""
    found = document.get(name)
    if not isinstance(found, dict):
        found = document[name] = {}
    return found
