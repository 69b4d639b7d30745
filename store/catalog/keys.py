"""Access keys: the keys that open a proxy to agents, by name.

Invariant: only the hash of a key is stored; a revoked name is never given to another key.
"""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.catalog.rows import AccessKeyRow
from weir.store.clock import now_us
from weir.store.errors import KeyConflict, KeyUnknown


def key_hash(key: str) -> str:
    """The hash by which a key is stored and compared."""
    return hashlib.sha256(key.encode()).hexdigest()


def add_access_key(catalog: Catalog, name: str, key: str) -> None:
    """Add a key, of which the hash is kept. Raises KeyConflict where the name is taken."""
    try:
        with catalog.writing(Area.KEYS).begin() as connection:
            connection.execute(t.access_keys.insert().values(name=name, key_hash=key_hash(key), created_us=now_us()))
    except IntegrityError as error:
        raise KeyConflict(f"cannot add the access key {name!r}: there is one of that name; choose another") from error


def access_keys(catalog: Catalog) -> list[AccessKeyRow]:
    """All keys that were ever added, oldest first."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.access_keys).order_by(t.access_keys.c.created_us, t.access_keys.c.name))
        return [AccessKeyRow(**row._mapping) for row in rows]


def revoke_access_key(catalog: Catalog, name: str) -> bool:
    """Revoke a key; False where it was revoked already. Raises KeyUnknown."""
    known = t.access_keys.c.name == name
    with catalog.writing(Area.KEYS).begin() as connection:
        if connection.execute(sa.select(t.access_keys).where(known)).first() is None:
            raise KeyUnknown(f"cannot revoke the access key {name!r}: there is none; `weir key list` names them")
        good = known & t.access_keys.c.revoked_us.is_(None)
        return connection.execute(t.access_keys.update().where(good).values(revoked_us=now_us())).rowcount > 0
