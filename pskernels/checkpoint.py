"""Passes that are kept in a file, so that a fit that was stopped goes on where it was.

    magic, key        what the fit is of
    length, CRC, npz  a record: the answers of a pass, or what else the fit has to know

Requests follow from answers alone.  So a fit that is begun again asks what it asked
before, and as long as the file has answers, no pass is needed: it goes on to the last
bit as if it had not been stopped.  A record is appended and synced as a whole; one that
is torn, by a crash in the midst of it, is noticed by its length or its CRC, and the
records before it are used.  Nothing in the file is executed.
"""

import io
import os
import struct
import zlib
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from pskernels._types import AnyArray, Path
from pskernels.passes import Answer

# Arrays by name.
Record: TypeAlias = dict[str, AnyArray]

MAGIC = b"pskernels passes 1\n"
KEY_BYTES = 32
HEAD = struct.Struct("<QI")


class Checkpoint:
    """The records of a fit.

    Parameters
    ----------
    path : str or path
    key : bytes
        A digest of what the fit is of; a file with another one is refused.

    Attributes
    ----------
    records : list of dict
        Arrays by name, those of before and those that were added.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = os.fspath(path)
        self.records: list[Record] = []
        self._end = len(MAGIC) + len(key)
        if os.path.exists(self.path) and os.path.getsize(self.path) > 0:
            self._read(key)
        else:
            with open(self.path, "wb") as file:
                file.write(MAGIC + key)

    def _read(self, key: bytes) -> None:
        with open(self.path, "rb") as file:
            head = file.read(self._end)
            if not head.startswith(MAGIC):
                raise ValueError(f"{self.path} is no checkpoint of this library")
            if head != MAGIC + key:
                raise ValueError(
                    f"{self.path} is the checkpoint of another fit, of other data or "
                    "parameters: remove it, or give another path"
                )
            while (record := _read_record(file)) is not None:
                self.records.append(record)
                self._end = file.tell()

    def add(self, record: Record) -> None:
        """Append a record, in the place of what may be torn."""
        buffer = io.BytesIO()
        # its stub takes any array for allow_pickle
        np.savez(buffer, **record)  # type: ignore[arg-type]
        payload = buffer.getvalue()
        with open(self.path, "r+b") as file:
            file.seek(self._end)
            file.truncate()
            file.write(HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
            file.flush()
            os.fsync(file.fileno())
            self._end = file.tell()
        self.records.append(record)

    def remove(self) -> None:
        """Remove the file of a fit that has ended."""
        os.remove(self.path)


def _read_record(file: BinaryIO) -> Record | None:
    """Read a record, None at the end or where it is torn."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, crc = HEAD.unpack(head)
    payload = file.read(length) if length < 2**40 else b""
    if len(payload) < length or zlib.crc32(payload) != crc:
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        return dict(arrays)


def pack_answers(answers: dict[int, Answer]) -> Record:
    """Make a record of the answers of outputs {number: Answer}."""
    record = {"outputs": np.array(sorted(answers))}
    for j, answer in answers.items():
        for name, value in vars(answer).items():
            if value is not None:
                record[f"{name}_{j}"] = np.asarray(value)
    return record


def unpack_answers(record: Record) -> dict[int, Answer]:
    """Make the answers of a record."""
    answers = {}
    for j in record["outputs"].tolist():
        values: dict[str, Any] = {
            name.rpartition("_")[0]: value
            for name, value in record.items()
            if name.rpartition("_")[2] == str(j)
        }
        values["n_active"] = int(values["n_active"])
        answers[j] = Answer(**values)
    return answers
