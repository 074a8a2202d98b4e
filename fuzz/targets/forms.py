"""Forms of the web app: fields, files, and the features in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fuzz.targets import Attack

MODULES = ("credibly.app.server.uploads", "credibly.app.store.model", "credibly.untrusted.arrays")
PART = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
END = b"--b--\r\n"


class Target(Attack):
    """``read_form``, then ``parse_features`` of all in it; numbers come out finite or missing."""

    def seeds(self) -> Iterable[bytes]:
        yield PART % (b"features", b"", b"1, 2.5; -3e1") + END
        yield PART % (b"file", b'; filename="x.csv"', b"a,b\n1,2\n3,4") + END
        yield PART % (b"file", b'; filename="x.json"', b'{"features": [[1, 2], [3, 4]]}') + END
        yield PART % (b"text", b"", b"hello") + PART % (b"second", b"", b"you") + END

    def read(self, data: bytes) -> None:
        from credibly.app.server.uploads import read_form
        from credibly.app.store.model import parse_features

        form = read_form("multipart/form-data; boundary=b", data)
        for name, file in form.files.items():
            assert "/" not in file.name, "a name has no folders"
            _check(parse_features(file.content, name)[0])
        for name, text in form.fields.items():
            _check(parse_features(text.encode(), name)[0])


def _check(rows: object) -> None:
    assert isinstance(rows, np.ndarray), "without names there is a matrix"
    assert not np.isinf(rows).any(), "numbers come out finite, or missing"
