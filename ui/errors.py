"""What the page refuses, with the status of HTTP that says so."""

from __future__ import annotations


class UiError(Exception):
    """Base class. The message says what, why, and what to do next."""

    status = 500


class NotFound(UiError):
    """No session, call or version has this name."""

    status = 404


class BadQuestion(UiError):
    """A parameter of the address cannot be used."""

    status = 400


class Forbidden(UiError):
    """Something that only a person with the control key may do, from a page of this server."""

    status = 403


class Unavailable(UiError):
    """The state of the store does not allow it now."""

    status = 409


class AddressUnavailable(UiError):
    """The address to listen on is taken, or is not this machine's."""
