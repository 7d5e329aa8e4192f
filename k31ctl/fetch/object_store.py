"""A prefix in object storage (``s3://bucket/prefix``), by fsspec: ranges out, whole files in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from k31ctl.errors import EndpointError, InputError, K31Error, RefusedError
from k31ctl.values import frozen

EXTRA: Final = "pip install 'k31ctl[objectstore]'"
_ERRORS: Final = (
    ("aiohttp", "ClientError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
_PART_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTS: Final = 9_000  # S3 takes 10,000 parts of a file


def is_store_url(spec: str) -> bool:
    """Whether a target or source is in a store and not a folder or a web server."""
    scheme, mark, _ = spec.partition("://")
    return bool(mark) and scheme not in ("http", "https", "")


@frozen
class StoredFile:
    """A file in a store; ``tag`` changes with its content, as far as the store tells."""

    size_bytes: int
    tag: str


class ObjectStore:
    """A prefix in a store; every failure is a K31Error that names the file."""

    def __init__(self, url: str) -> None:
        """Raise InputError where the store's package is missing or the URL is none."""
        self.url = url.rstrip("/")
        self._fs, self._root = _opened(self.url)

    def stat(self, path: str) -> StoredFile | None:
        """Return what is known of a file, None where there is none."""
        with self._told(path):
            try:
                info = self._fs.info(self._at(path))
            except FileNotFoundError:
                return None
            if info.get("type") != "file":
                return None
            tag = next((info[k] for k in ("ETag", "etag", "md5Hash", "mtime") if k in info), "")
            return StoredFile(size_bytes=int(info["size"]), tag=str(tag).strip('"'))
        raise AssertionError("a failure is raised above")

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return bytes ``start`` up to ``end`` of a file; raises FileNotFoundError."""
        with self._told(path, may_lack=True):
            return bytes(self._fs.cat_file(self._at(path), start=start, end=end))
        raise AssertionError("a failure is raised above")

    def read_small(self, path: str, *, most_bytes: int) -> bytes | None:
        """Return a small file whole, None where there is none or it is large."""
        found = self.stat(path)
        if found is None or found.size_bytes > most_bytes:
            return None
        return self.read(path, 0, found.size_bytes)

    def put(self, path: str, content: bytes) -> None:
        """Write a small file in one request."""
        with self._told(path):
            self._make_folder(path)
            self._fs.pipe_file(self._at(path), content)

    @contextmanager
    def held_back(self, path: str, *, size_bytes: int) -> Iterator[Any]:
        """Open a large file for writing; it appears only if ``commit`` is called on what is given.

        Without that call, or after a failure, nothing of it stays in the store.
        """
        part = max(_PART_BYTES, -(-size_bytes // _MOST_PARTS))
        with self._told(path):
            self._make_folder(path)
            stream = self._fs.open(self._at(path), "wb", block_size=part, autocommit=False)
            if getattr(stream, "autocommit", True):
                stream.close()
                raise _cannot_hold_back(self.url)
            held = _Held(stream)
            try:
                yield held
                held.finish()
            finally:
                held.drop()

    def _make_folder(self, path: str) -> None:
        """Make the folder of a file where the store is a disk; a bucket needs none."""
        if self._fs.protocol in ("file", ("file", "local")):
            self._fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _told(self, path: str, *, may_lack: bool = False) -> Iterator[None]:
        """Say what a failure of the store's client means."""
        where = f"{self.url}/{path}"
        try:
            yield
        except FileNotFoundError:
            if may_lack:
                raise
            raise _no_place(self.url) from None
        except PermissionError as error:
            raise _refused(error, where) from None
        except _client_errors() as error:
            raise _failed(error, where) from None


class _Held:
    """A stream whose content the store keeps back until ``commit``."""

    def __init__(self, stream: Any) -> None:
        from fsspec.spec import AbstractBufferedFile  # noqa: PLC0415  loaded by now

        self._buffered = AbstractBufferedFile
        self._stream, self._wanted, self._ended = stream, False, False

    def write(self, piece: bytes) -> None:
        """Add bytes."""
        self._stream.write(piece)

    def commit(self) -> None:
        """Let the file appear once the block ends."""
        self._wanted = True

    def finish(self) -> None:
        """Make the file appear where that is wanted."""
        if self._wanted:
            self._stream.close()
            self._stream.commit()
            self._ended = True

    def drop(self) -> None:
        """Remove what was sent of a file that is not to appear."""
        if self._ended:
            return
        with suppress(OSError, *_client_errors()):
            if isinstance(self._stream, self._buffered):
                self._stream.discard()
                self._stream.closed = True  # or it would send the rest when it is collected
            else:
                self._stream.close()
                self._stream.discard()


def _opened(url: str) -> tuple[Any, str]:
    import fsspec  # noqa: PLC0415  slow to import

    try:
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise InputError(
            f"this kind of storage needs a package that is not installed: {error}",
            where=url,
            remedy=EXTRA,
        ) from None
    except ValueError as error:
        raise InputError(
            f"no such kind of storage: {error}",
            where=url,
            remedy="write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or another URL of fsspec",
        ) from None
    return fs, root.rstrip("/")


def _client_errors() -> tuple[type[BaseException], ...]:
    """Return what the clients that are loaded raise, and what the system raises."""
    loaded = [(sys.modules[name], kind) for name, kind in _ERRORS if name in sys.modules]
    return (OSError, *(getattr(module, kind) for module, kind in loaded))


def _refused(error: PermissionError, where: str) -> K31Error:
    return RefusedError(
        f"the store does not give access: {str(error).lower() or 'permission denied'}",
        where=where,
        remedy="check the credentials in the environment, and what they allow on this prefix",
        rule="store-access",
    )


def _failed(error: BaseException, where: str) -> K31Error:
    text = str(error).partition("\n")[0][:200] or type(error).__name__
    return EndpointError(
        f"the store cannot be reached or failed: {text}",
        where=where,
        remedy="check the network, the credentials and the region (AWS_ENDPOINT_URL names "
        "another S3 server); the same command goes on where this one stopped",
    )


def _no_place(url: str) -> K31Error:
    return InputError(
        "there is no such bucket or folder",
        where=url,
        remedy="make the bucket first, or correct the URL",
    )


def _cannot_hold_back(url: str) -> K31Error:
    return RefusedError(
        "this store cannot keep a file back until it is proven",
        where=url,
        remedy="use a store that takes files in parts, as s3:// and gs:// do",
        rule="store-atomic",
    )
