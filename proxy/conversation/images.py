"""Images in messages: refused, or a text in their place where a setting says so.

Prompts at level `tokens` are text: which tokens an image becomes is up to a vision model's own processor. Where engines
render (level `passthrough`), images pass as they are.
"""

from __future__ import annotations

import msgspec

from weir.proxy.conversation.call_request import CallRequest
from weir.proxy.errors import BadRequest


def without_images(request: CallRequest, setting: str) -> CallRequest:
    """The request with texts for its images, which it then names as ignored. Raises `BadRequest` for `refuse`."""
    if not request.images:
        return request
    if setting == "refuse":
        raise BadRequest(
            f"{request.images[0]}: images are not supported here, because the proxy writes prompts as text; leave them "
            'out. proxy.images = "placeholder" puts a text in their place, and proxy.level = "passthrough" lets the '
            "engine of a vision model render them.",
            param=request.images[0],
            code="unsupported_content",
        )
    return msgspec.structs.replace(request, ignored_fields=request.ignored_fields + request.images)
