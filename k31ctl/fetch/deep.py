"""Values of a checkpoint's tensors, read in blocks of bounded size by several processes."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from k31ctl.core.finding import Severity
from k31ctl.core.found_tensors import FoundTensor
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.headers import Header, read_headers
from k31ctl.fetch.proven import ProvenFiles, Stamp, stamp_of
from k31ctl.fetch.value_readers import read_by_processes
from k31ctl.fetch.value_scan import (
    GROUP_BYTES,
    SECTOR_BYTES,
    bad_scales,
    has_values,
    is_all_zero,
    is_zero_group,
    scale_counts,
    special_values,
    weak_groups,
    zero_scales,
)
from k31ctl.fetch.watch import Watch
from k31ctl.units import counted
from k31ctl.values import fields_of, frozen

BLOCK_BYTES: Final = 4 * 2**20  # a multiple of every element and of every group
MOST_FINDINGS: Final = 20  # of one kind in one tensor; the last one says how many there are
_PACKED: Final = ".weight_packed"
_SCALE: Final = ".weight_scale"
_ZEROS: Final = re.compile(rb"\x00+")
_Told = tuple[int, int, list[dict[str, Any]]]


@frozen
class Values:
    """What came of reading the values."""

    num_tensors: int
    num_bytes: int
    num_reused: int
    findings: tuple[Finding, ...]


def check_values(
    folder: Path, files: Sequence[str], *, num_jobs: int, proven: ProvenFiles, watch: Watch
) -> Values:
    """Read every value of the files; a file whose header is broken is left to the structure.

    What an earlier run has told of a file that is unchanged since is not read again.
    """
    told: dict[str, _Told] = {}
    to_read: dict[str, Stamp] = {}
    for file in files:
        stamp = stamp_of(folder / file)
        known = proven.values_of(file, stamp) if isinstance(stamp, Stamp) else None
        if known is not None:
            told[file] = known[0], known[1], known[2]
        elif isinstance(stamp, Stamp):
            to_read[file] = stamp
    if to_read:
        watch.begin("values", sum(stamp.size_bytes for stamp in to_read.values()))
    num_reused = len(told)
    for file, found in _told_of(folder, list(to_read), num_jobs=num_jobs):
        told[file] = found
        watch.advance(to_read[file].size_bytes)
        if stamp_of(folder / file) == to_read[file]:
            proven.add_values(file, to_read[file], list(found))
    parts = [told[file] for file in files if file in told]
    return Values(
        num_tensors=sum(num_tensors for num_tensors, _, _ in parts),
        num_bytes=sum(num_bytes for _, num_bytes, _ in parts),
        num_reused=num_reused,
        findings=tuple(_finding(fields) for _, _, findings in parts for fields in findings),
    )


def _told_of(folder: Path, files: Sequence[str], *, num_jobs: int) -> Iterator[tuple[str, _Told]]:
    """Yield what the values of each file tell, as they are read."""
    if num_jobs <= 1 or len(files) <= 1:
        for file in files:
            yield file, read_values(folder, file)
        return
    for file, (num_tensors, num_bytes, findings) in read_by_processes(
        folder, files, num_jobs=num_jobs
    ):
        yield file, (num_tensors, num_bytes, findings)


def read_values(folder: Path, file: str) -> _Told:
    """What ``check_file`` returns, as what one process can send to another, and JSON can hold."""
    found = check_file(folder, file)
    return found.num_tensors, found.num_bytes, [fields_of(finding) for finding in found.findings]


def _finding(fields: dict[str, Any]) -> Finding:
    return Finding(
        **(fields | {"level": Level(fields["level"]), "severity": Severity(fields["severity"])})
    )


def check_file(folder: Path, file: str) -> Values:
    """Read every value of one file."""
    (header,) = read_headers(folder, [file])
    if header.problems:
        return Values(num_tensors=0, num_bytes=0, num_reused=0, findings=())
    places = {
        tensor.name: _Place(header, tensor, header.data_start + begin)
        for tensor, begin in zip(header.tensors, header.begins, strict=True)
    }
    findings: list[Finding] = []
    with (folder / file).open("rb", buffering=0) as stream:
        for name, at in places.items():
            if at.tensor.dtype == "U8" and name.endswith(_SCALE):
                packed = places.get(name.removesuffix(_SCALE) + _PACKED)
                findings += _scale_findings(stream, at, _start_of(packed, like=at))
            elif at.tensor.dtype == "U8" and name.endswith(_PACKED):
                scales = places.get(name.removesuffix(_PACKED) + _SCALE)
                is_theirs = _start_of(at, like=scales) is not None
                findings += _packed_findings(stream, at, scales if is_theirs else None)
            else:
                findings += _plain_findings(stream, at)
    return Values(
        num_tensors=len(header.tensors),
        num_bytes=sum(tensor.num_bytes for tensor in header.tensors),
        num_reused=0,
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


def _start_of(packed: _Place | None, *, like: _Place | None) -> int | None:
    """Where packed values begin that these scales are of, None where they do not belong."""
    if packed is None or like is None:
        return None
    fits = packed.tensor.num_bytes == like.tensor.num_bytes * GROUP_BYTES
    return packed.start if fits else None


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


def _scale_findings(stream: BinaryIO, place: _Place, packed: int | None) -> Iterator[Finding]:
    """Scale bytes out of range, each with its place; 0 over values that are not zero."""
    counts = _counts(stream, place)
    for exponent, (problem, is_error) in sorted(bad_scales(counts).items()):
        severity = Severity.ERROR if is_error else Severity.WARNING
        places = _places_of(stream, place, exponent)
        if not is_error:
            places = (at for at in places if exponent and _has_values(stream, packed, at))
        told = list(islice(places, MOST_FINDINGS))
        for at in told:
            text = f"scale byte {exponent} {problem}"
            yield place.finding(text, at, at + 1, severity=severity)
        if len(told) == MOST_FINDINGS < counts[exponent]:
            text = f"has {counts[exponent]:,} scale bytes {exponent}: {problem}"
            yield place.finding(text, 0, place.tensor.num_bytes, severity=severity)
    if packed is not None and 0 in counts:
        yield from _lost_scales(stream, place, packed)


def _places_of(stream: BinaryIO, place: _Place, value: int) -> Iterator[int]:
    """Where in a tensor a byte stands."""
    for done, block in _blocks(stream, place):
        at = block.find(value)
        while at >= 0:
            yield done + at
            at = block.find(value, at + 1)


def _has_values(stream: BinaryIO, packed: int | None, group: int) -> bool:
    """Whether a group has values, as far as can be known."""
    if packed is None:
        return True
    return has_values(_read(stream, packed + group * GROUP_BYTES, GROUP_BYTES))


def _counts(stream: BinaryIO, place: _Place) -> dict[int, int]:
    counts: dict[int, int] = {}
    for _, block in _blocks(stream, place):
        scale_counts(block, counts)
    return counts


def _lost_scales(stream: BinaryIO, place: _Place, packed: int) -> Iterator[Finding]:
    """Runs of scale bytes 0 whose groups have values: 2^-127 of anything is nothing."""
    num_told = 0
    for done, block in _blocks(stream, place):
        for run in _ZEROS.finditer(block):
            first, end = run.span()
            codes = _read(
                stream, packed + (done + first) * GROUP_BYTES, (end - first) * GROUP_BYTES
            )
            if not has_values(codes):
                continue
            num_told += 1
            if num_told > MOST_FINDINGS:
                return
            text = f"{end - first:,} scale bytes are 0 over values that are not zero"
            yield place.finding(text, done + first, done + end)


def _packed_findings(stream: BinaryIO, place: _Place, scales: _Place | None) -> Iterator[Finding]:
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
        groups = counted((end - first) // GROUP_BYTES, "group")
        is_one = end - first == GROUP_BYTES
        are, have = ("is", "has") if is_one else ("are", "have")
        what = f"{are} all zeros under a scale" if is_zero else f"{have} no value above 2"
        yield place.finding(
            f"{groups} {what}",
            first,
            end,
            severity=Severity.ERROR if lost else Severity.WARNING,
        )
    if num_told > MOST_FINDINGS:
        text = f"has {num_all:,} groups that do not use their scale, in {num_told:,} places"
        yield place.finding(text, 0, size, severity=Severity.WARNING)


def _runs(
    stream: BinaryIO, place: _Place, scales: _Place | None
) -> Iterator[tuple[int, int, bool]]:
    """Neighbouring weak groups of one kind: first byte, end, and whether they are zeros."""
    of_zeros: frozenset[int] | None = None
    run: tuple[int, int, bool] | None = None
    for done, block in _blocks(stream, place):
        beside = b""
        for start in weak_groups(block):
            zero = is_zero_group(block, start)
            if zero and scales is not None:
                if not beside:
                    num_groups = len(block) // GROUP_BYTES
                    beside = _read(stream, scales.start + done // GROUP_BYTES, num_groups)
                if of_zeros is None:
                    of_zeros = zero_scales(_counts(stream, scales))
                if beside[start // GROUP_BYTES] in of_zeros:
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
