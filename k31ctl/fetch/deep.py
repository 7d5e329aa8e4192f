"""Values of a checkpoint's tensors, read in blocks of bounded size by several processes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO, Final

from k31ctl.core.found_tensors import FoundTensor
from k31ctl.fetch.findings import Finding, Level, Severity
from k31ctl.fetch.headers import Header, read_headers
from k31ctl.fetch.value_scan import (
    GROUP_BYTES,
    SECTOR_BYTES,
    bad_scales,
    is_all_zero,
    is_zero_group,
    scale_counts,
    special_values,
    weak_groups,
)
from k31ctl.values import frozen

BLOCK_BYTES: Final = 4 * 2**20  # a multiple of every element and of every group
MOST_FINDINGS: Final = 20  # of one kind in one tensor; the last one says how many there are
_PACKED: Final = ".weight_packed"
_SCALE: Final = ".weight_scale"
_ZERO_SCALES: Final = (0,)


@frozen
class Values:
    """What came of reading the values."""

    num_tensors: int
    num_bytes: int
    findings: tuple[Finding, ...]


def check_values(folder: Path, files: Sequence[str], *, num_jobs: int) -> Values:
    """Read every value of the files; a file whose header is broken is left to the structure."""
    if num_jobs <= 1 or len(files) <= 1:
        parts = [check_file(folder, file) for file in files]
    else:
        # Threads would take turns: translating bytes holds Python's lock. A fresh process each
        # has no copy of our threads.
        workers = min(num_jobs, len(files))
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            told = list(pool.map(_told, [folder] * len(files), files))
        parts = [
            Values(num_tensors=n, num_bytes=size, findings=tuple(Finding(**f) for f in findings))
            for n, size, findings in told
        ]
    return Values(
        num_tensors=sum(part.num_tensors for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        findings=tuple(finding for part in parts for finding in part.findings),
    )


def _told(folder: Path, file: str) -> tuple[int, int, list[dict[str, Any]]]:
    """What ``check_file`` returns, as what one process can send to another."""
    found = check_file(folder, file)
    fields = Finding.__slots__  # type: ignore[attr-defined]
    findings = [{name: getattr(f, name) for name in fields} for f in found.findings]
    return found.num_tensors, found.num_bytes, findings


def check_file(folder: Path, file: str) -> Values:
    """Read every value of one file."""
    (header,) = read_headers(folder, [file])
    if header.problems:
        return Values(num_tensors=0, num_bytes=0, findings=())
    begins = {t.name: b for t, b in zip(header.tensors, header.begins, strict=True)}
    findings: list[Finding] = []
    with (folder / file).open("rb", buffering=0) as stream:
        for tensor, begin in zip(header.tensors, header.begins, strict=True):
            at = _Place(header, tensor, header.data_start + begin)
            scales = tensor.name.removesuffix(_PACKED) + _SCALE
            if tensor.dtype == "U8" and tensor.name.endswith(_SCALE):
                findings += _scale_findings(stream, at)
            elif tensor.dtype == "U8" and tensor.name.endswith(_PACKED):
                first = header.data_start + begins[scales] if scales in begins else None
                findings += _packed_findings(stream, at, first)
            else:
                findings += _plain_findings(stream, at)
    return Values(
        num_tensors=len(header.tensors),
        num_bytes=sum(tensor.num_bytes for tensor in header.tensors),
        findings=tuple(findings),
    )


class _Place:
    """A tensor and its first byte in its file."""

    def __init__(self, header: Header, tensor: FoundTensor, start: int) -> None:
        self.file, self.tensor, self.start = header.file, tensor, start

    def finding(
        self, problem: str, first: int, end: int, *, severity: Severity = Severity.ERROR
    ) -> Finding:
        """A fault in bytes ``first`` to ``end`` of the tensor."""
        return Finding(
            level=Level.VALUES,
            severity=severity,
            file=self.file,
            tensor=self.tensor.name,
            problem=problem,
            start=self.start + first,
            end=self.start + end,
        )


def _blocks(stream: BinaryIO, place: _Place) -> Iterator[tuple[int, bytes]]:
    done = 0
    while done < place.tensor.num_bytes:
        block = _read(stream, place.start + done, min(BLOCK_BYTES, place.tensor.num_bytes - done))
        if not block:
            return
        yield done, block
        done += len(block)


def _read(stream: BinaryIO, start: int, num_bytes: int) -> bytes:
    stream.seek(start)
    parts: list[bytes] = []
    while num_bytes > 0 and (part := stream.read(num_bytes)):
        parts.append(part)
        num_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _plain_findings(stream: BinaryIO, place: _Place) -> Iterator[Finding]:
    """NaNs and infinities in a tensor, and whether it is nothing but zeros."""
    size = place.tensor.num_bytes
    width = max(1, size // max(1, _num_elements(place.tensor)))
    zero, num_special, first = size > 0, 0, 0
    for done, block in _blocks(stream, place):
        zero = zero and is_all_zero(block)
        for at in special_values(place.tensor.dtype, block):
            num_special += 1
            first = first if num_special > 1 else done + at
            if num_special <= MOST_FINDINGS:
                yield place.finding("is NaN or infinite", done + at, done + at + width)
    if num_special > MOST_FINDINGS:
        yield place.finding(f"has {num_special:,} NaNs or infinities in all", first, size)
    if zero:
        is_matrix = sum(axis > 1 for axis in place.tensor.shape) > 1
        severity = Severity.ERROR if is_matrix else Severity.WARNING
        yield place.finding("is all zeros", 0, size, severity=severity)


def _num_elements(tensor: FoundTensor) -> int:
    count = 1
    for axis in tensor.shape:
        count *= axis
    return count


def _scale_findings(stream: BinaryIO, place: _Place) -> Iterator[Finding]:
    """Scale bytes out of range, each with its place."""
    counts: dict[int, int] = {}
    for _, block in _blocks(stream, place):
        scale_counts(block, counts)
    for exponent, problem in sorted(bad_scales(counts).items()):
        num_told = 0
        for done, block in _blocks(stream, place):
            at = block.find(exponent)
            while at >= 0 and num_told < MOST_FINDINGS:
                num_told += 1
                text = f"scale byte {exponent} {problem}"
                yield place.finding(text, done + at, done + at + 1)
                at = block.find(exponent, at + 1)
        if counts[exponent] > MOST_FINDINGS:
            text = f"has {counts[exponent]:,} scale bytes {exponent}: {problem}"
            yield place.finding(text, 0, place.tensor.num_bytes)


def _packed_findings(stream: BinaryIO, place: _Place, scales: int | None) -> Iterator[Finding]:
    """Groups that do not use their scale, as ranges of neighbouring groups.

    A sector or more of zeros under scales that are not zero is damage; a single group may be how
    an encoder wrote it, and is a warning.
    """
    size, num_told, num_all = place.tensor.num_bytes, 0, 0
    for first, end, is_zero in _runs(stream, place, scales):
        num_all += (end - first) // GROUP_BYTES
        num_told += 1
        if num_told > MOST_FINDINGS:
            continue
        lost = is_zero and end - first >= SECTOR_BYTES
        what = "groups are all zeros under a scale" if is_zero else "groups have no value above 2"
        yield place.finding(
            f"{(end - first) // GROUP_BYTES:,} {what}",
            first,
            end,
            severity=Severity.ERROR if lost else Severity.WARNING,
        )
    if num_told > MOST_FINDINGS:
        text = f"has {num_all:,} groups that do not use their scale, in {num_told:,} places"
        yield place.finding(text, 0, size, severity=Severity.WARNING)


def _runs(stream: BinaryIO, place: _Place, scales: int | None) -> Iterator[tuple[int, int, bool]]:
    """Neighbouring weak groups of one kind: first byte, end, and whether they are zeros."""
    run: tuple[int, int, bool] | None = None
    for done, block in _blocks(stream, place):
        beside = b""
        for start in weak_groups(block):
            zero = is_zero_group(block, start)
            if zero and scales is not None:
                if not beside:
                    num_groups = len(block) // GROUP_BYTES
                    beside = _read(stream, scales + done // GROUP_BYTES, num_groups)
                if beside[start // GROUP_BYTES] in _ZERO_SCALES:
                    continue
            at = done + start
            if run is not None and run[1] == at and run[2] == zero:
                run = (run[0], at + GROUP_BYTES, zero)
                continue
            if run is not None:
                yield run
            run = (at, at + GROUP_BYTES, zero)
    if run is not None:
        yield run
