"""Errors of the proxy, named for the boundary that failed.

    ProxyError
    ├── SetupError            the proxy cannot start with this model or configuration (exit 2)
    ├── UpstreamNotTaken      no engine took a piece of a call
    │   └── UpstreamNotReached  because no connection was accepted
    ├── UpstreamLost          an engine took a piece and did not finish it
    ├── UpstreamRejected      an engine rejected a piece as an invalid request
    ├── PeerGone              another process of this proxy has ended
    └── CallError             a call ends with an error that its dialect can express
        ├── BadRequest        the agent's body cannot be served; names the parameter
        ├── UnknownModel      no such model here
        ├── ContextTooLong    the prompt does not fit the model's context
        ├── RequestTooLarge   the body is larger than the proxy reads
        ├── UnknownEncoding   the body's content-encoding is not read here
        ├── BadKey            an unknown key, or none where one is required
        ├── SessionFinished   the session was finished and takes no more calls
        ├── BodyTooSlow       the body did not arrive in time
        ├── Overloaded        the queue of waiting requests is full
        ├── NoSuchRoute       path or method that the proxy does not serve
        ├── Conflict          the request contradicts a registered session or reward
        ├── Unavailable       nothing can answer now; retrying may help
        ├── UpstreamFailed    an engine failed in the middle, or its answer cannot be parsed
        ├── PeerFailed        another process of this proxy failed a request
        └── NotRecorded       the answer could not be recorded, so it is not given

Every CallError has a status, the fields of OpenAI's error object, and a message with the value seen and the remedy.
"""

from __future__ import annotations

from typing import Any


class ProxyError(Exception):
    """Base of the proxy's errors."""


class SetupError(ProxyError, ValueError):
    """The proxy cannot start; the message names the setting."""

    exit_code = 2


class CallError(ProxyError):
    """A call that ends with an error that the agent receives. `retry_after_s` is set where a retry may help."""

    status = 500
    kind = "api_error"
    code: str | None = None
    retry_after_s: float | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or type(self).code


class BadRequest(CallError):
    """The body is malformed or asks for something unsupported."""

    status = 400
    kind = "invalid_request_error"


class UnknownModel(CallError):
    """The named model is not served here."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"


class ContextTooLong(CallError):
    """Prompt and answer do not fit the context."""

    status = 400
    kind = "invalid_request_error"
    code = "context_length_exceeded"


class RequestTooLarge(CallError):
    """The body exceeds proxy.max_request_bytes."""

    status = 413
    kind = "invalid_request_error"
    code = "request_too_large"


class UnknownEncoding(CallError):
    """The body is compressed in a way that the proxy does not read."""

    status = 415
    kind = "invalid_request_error"
    code = "unsupported_content_encoding"


class BadKey(CallError):
    """The credential is missing or unknown."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class SessionFinished(CallError):
    """The session was finished; its recorded calls stay as they were judged."""

    status = 403
    kind = "permission_error"
    code = "session_finished"


class BodyTooSlow(CallError):
    """The request's body did not arrive within proxy.body_timeout_s."""

    status = 408
    kind = "invalid_request_error"
    code = "body_too_slow"


class Overloaded(CallError):
    """proxy.max_concurrent requests are served and proxy.max_queued wait."""

    status = 503
    kind = "api_error"
    code = "overloaded"
    retry_after_s = 1.0


class NoSuchRoute(CallError):
    """The proxy does not serve this path, or not with this method."""

    status = 404
    kind = "invalid_request_error"
    code = "not_found"

    def __init__(self, message: str, *, status: int = 404) -> None:
        super().__init__(message)
        self.status = status


class Conflict(CallError):
    """The request contradicts a registered session or reward."""

    status = 409
    kind = "invalid_request_error"
    code = "conflict"


class Unavailable(CallError):
    """No engine took the call, or the proxy cannot serve now."""

    status = 503
    kind = "api_error"
    code = "no_engine_available"
    retry_after_s = 1.0


class UpstreamFailed(CallError):
    """An engine took the call and did not finish it."""

    status = 502
    kind = "api_error"
    code = "upstream_failed"
    retry_after_s = 1.0


class NotRecorded(CallError):
    """The store refused the record, so the answer is not given."""

    status = 503
    kind = "api_error"
    code = "not_recorded"
    retry_after_s = 5.0


class PeerFailed(CallError):
    """Another process of this proxy is alive and failed a request."""

    status = 503
    kind = "api_error"
    code = "peer_failed"
    retry_after_s = 1.0


class PeerGone(ProxyError):
    """Another process of this proxy has ended and can be left out."""


class UpstreamNotTaken(ProxyError):
    """No engine took the piece (connection refused, 503): sending it again cannot make anything happen twice."""


class UpstreamNotReached(UpstreamNotTaken):
    """The upstream accepted no connection, whatever the piece: it is full, or not there."""


class UpstreamLost(ProxyError):
    """An engine took the piece, and its answer ended before it was complete."""


class UpstreamRejected(ProxyError):
    """An engine refused the piece's content (a 4xx); sending it again cannot help."""


def error_object(error: CallError) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}
