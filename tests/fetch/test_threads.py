import threading

import pytest

from k31ctl.fetch.threads import Threads
from k31ctl.fetch.trouble import StoppedError


def test_what_nobody_foresaw_in_a_thread_stops_the_others_and_is_raised() -> None:
    stopped = threading.Event()

    def fail() -> None:
        raise ZeroDivisionError

    def wait() -> None:
        stopped.wait()

    threads = Threads(stop=stopped.set)
    threads.start([wait, fail], name="test")
    threads.join(timeout_s=60)
    assert not threads.are_running()
    with pytest.raises(ZeroDivisionError):
        threads.raise_unforeseen()


def test_a_thread_that_is_stopped_is_no_failure() -> None:
    def stop() -> None:
        raise StoppedError

    threads = Threads(stop=lambda: None)
    threads.start([stop], name="test")
    threads.join(timeout_s=60)
    threads.raise_unforeseen()
