"""An extension of griffe: the comment behind a field, which carries its unit or meaning, is the field's description."""

from __future__ import annotations

from typing import Any

from griffe import Attribute, Docstring, Extension


class FieldComments(Extension):
    """Reads the comments behind annotated fields; a docstring wins over a comment."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno and attr.lineno == attr.endlineno:
            comment = attr.source.partition("  # ")[2].strip()
            if comment and not comment.startswith(("type:", "noqa")):
                attr.docstring = Docstring(comment[0].upper() + comment[1:], parent=attr)
