"""JSON values in annotations, which any author of an object may have written."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class AnnotationError(ValueError):
    """A text that does not decode to the type asked for; the message says where."""


def decode_annotation(text: str, kind: type[T]) -> T:
    """Decode JSON to `kind`. Raises AnnotationError for all that cannot be: depth, surrogates, numbers beyond range."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, ArithmeticError, TypeError) as error:
        raise AnnotationError(str(error)) from error
    except RecursionError as error:
        raise AnnotationError("nested too deeply") from error
