"""Who looks on while a folder is verified or repaired."""

from k31ctl.fetch.events import Event


class Watch:
    """Is told how far the work is; this one does nothing with it."""

    def begin(self, what: str, num_bytes: int) -> None:
        """Work of so many bytes begins."""

    def advance(self, num_bytes: int) -> None:
        """So many bytes of it are done; from any thread."""

    def tell(self, event: Event) -> None:
        """Something happened that is worth a line."""
