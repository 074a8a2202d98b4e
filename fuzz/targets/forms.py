"""Forms of the web app: fields, files, and the features in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fuzz.targets import Attack

MODULES = ("credibly.app.server.uploads", "credibly.app.served.model", "credibly.predictions.npz")
PART = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
END = b"--b--\r\n"


class Target(Attack):
    """``read_form``, then ``parse_features`` of every file and field; numbers come out finite."""

    def seeds(self) -> Iterable[bytes]:
        yield PART % (b"features", b"", b"1, 2.5; -3e1") + END
        yield PART % (b"file", b'; filename="x.csv"', b"a,b\n1,2\n3,4") + END
        yield PART % (b"file", b'; filename="x.json"', b'{"features": [[1, 2], [3, 4]]}') + END
        array = b"\x93NUMPY\x01\x00\x06\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"
        yield PART % (b"file", b'; filename="x.npy"', array + b"\0\0\0\0") + END
        yield PART % (b"text", b"", b"hello") + PART % (b"second", b"", b"you") + END

    def read(self, data: bytes) -> None:
        from credibly.app.served.model import parse_features
        from credibly.app.server.uploads import read_form

        form = read_form("multipart/form-data; boundary=b", data)
        for name, file in form.files.items():
            assert "/" not in file.name, "a name has no folders"
            assert np.isfinite(parse_features(file.content, file.ending, name)).all()
        for name, text in form.fields.items():
            assert np.isfinite(parse_features(text.encode(), "", name)).all()
