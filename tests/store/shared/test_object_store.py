"""Object storage on a real S3 server: objects never change, and refusals are errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from support_s3 import S3Server

from weir.store.config import StoreConfig
from weir.store.errors import ObjectConflict, StoreUnavailable
from weir.store.shared import object_store as objects_module
from weir.store.shared.object_store import Objects, objects_of


@pytest.fixture
def objects(s3: S3Server) -> Objects:
    return Objects(s3.new_root(), s3.url)


def test_an_object_is_put_once_and_read_back(objects: Objects, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    objects.put("data/a", file)
    objects.put("data/a", b"content")
    assert objects.read("data/a") == b"content"
    objects.fetch("data/a", tmp_path / "there" / "a")
    assert (tmp_path / "there" / "a").read_bytes() == b"content"
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["a"], "nothing is left aside"


def test_an_object_is_not_put_over_another(objects: Objects) -> None:
    objects.put("a", b"first")
    with pytest.raises(ObjectConflict, match="its content differs"):
        objects.put("a", b"second")
    assert objects.read("a") == b"first"


def test_of_many_writers_of_one_object_one_wins_and_the_others_are_told(objects: Objects) -> None:
    def put(i: int) -> bytes | None:
        try:
            objects.put("a", b"%d" % i)
        except ObjectConflict:
            return None
        return b"%d" % i

    with ThreadPoolExecutor(8) as pool:
        winners = [won for won in pool.map(put, range(8)) if won is not None]
    assert [objects.read("a")] == winners


def test_what_is_larger_than_one_request_is_put_in_parts_under_a_name_of_its_content_only(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "ONE_REQUEST_BYTES", 1000)
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 50_000)
    with pytest.raises(StoreUnavailable, match="takes at most 1,000 under the condition"):
        objects.put("large", file)
    assert objects.names("") == []
    objects.put("large", file, named_by_content=True)
    objects.put("large", file, named_by_content=True)
    with pytest.raises(ObjectConflict):
        objects.put("large", b"x" * 2000, named_by_content=True)
    objects.fetch("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()


def test_parts_grow_with_the_object_so_that_storage_takes_their_number(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "ONE_REQUEST_BYTES", 1000)
    monkeypatch.setattr(objects_module, "MOST_PARTS", 2)
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 100_001)
    objects.put("large", file, named_by_content=True)
    objects.fetch("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    etag = obstore.head(objects._store, "large")["e_tag"]
    assert etag is not None and etag.strip('"').endswith("-2"), "S3 ends it with the number of parts"


def test_objects_are_listed_and_deleted_by_their_folder(objects: Objects) -> None:
    for key in ("data/b", "data/a", "log/x/1"):
        objects.put(key, b"")
    assert objects.names("data") == ["data/a", "data/b"]
    objects.delete(["data/a", "data/never"])
    objects.delete([])
    assert objects.names("data") == ["data/b"]
    assert objects.read("data/a") is None


def test_what_is_not_there_is_not_fetched_and_leaves_nothing(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        objects.fetch("nothing", tmp_path / "here" / "nothing")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_server_that_is_away_is_named_in_one_line(
    s3: S3Server, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "RETRY_S", 0)
    objects = Objects("s3://bucket/prefix", f"http://127.0.0.1:{free_port}")
    with pytest.raises(StoreUnavailable, match=r"cannot read s3://bucket/prefix/a: .*store\.s3_endpoint") as refused:
        objects.read("a")
    assert "\n" not in str(refused.value)


def test_a_root_is_a_folder_or_in_s3(tmp_path: Path) -> None:
    config = StoreConfig.model_validate({"root": "s3://bucket/prefix", "local_folder": str(tmp_path)})
    assert (config.folder, config.log_dir, config.root) == (tmp_path, tmp_path / "log", "s3://bucket/prefix")
    assert objects_of(config) is not None
    assert config.at("here").folder == Path("here")
    assert config.at(None) == config
    assert objects_of(StoreConfig(root=tmp_path)) is None
    with pytest.raises(ValueError, match="root"):
        StoreConfig.model_validate({"root": ["s3://"]})
