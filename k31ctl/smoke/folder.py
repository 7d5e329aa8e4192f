"""The checkpoint of a smoke test: the one that was named, or a tiny one for as long as it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from k31ctl.catalog.store import Store
from k31ctl.tiny.checkpoint import write_tiny


@contextmanager
def smoke_folder(store: Store, folder: Path | None, *, model: str) -> Iterator[tuple[Path, str]]:
    """The folder and what to call it."""
    if folder is not None:
        yield folder, folder.name or str(folder)
        return
    with TemporaryDirectory(prefix="k31ctl-smoke-") as name:
        place = Path(name) / "tiny"
        write_tiny(store, place, model=model, seed=0)
        yield place, f"a tiny {model}"
