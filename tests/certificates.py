"""Certificate authorities of tests and what they issue, made by openssl.

authority = Authority(tmp_path, "ca")
server = authority.issue("server", names=("IP:127.0.0.1",))
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CURVE = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
_EXTENSIONS = """basicConstraints=CA:FALSE
keyUsage=critical,digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM files."""

    certificate: Path
    key: Path


def pair_in(folder: Path, name: str) -> Pair:
    """Return the pair of this name in a folder."""
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


class Authority:
    """A self-signed authority in a folder; `issue` makes certificates for servers and clients alike."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self.pair = pair_in(folder, name)
        usage = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"
        where = ["-keyout", self.pair.key, "-out", self.pair.certificate]
        _openssl("req", "-x509", "-newkey", *_CURVE, *where, "-days", "30", "-subj", f"/CN={name}", "-addext", usage)

    @classmethod
    def found(cls, folder: Path, name: str) -> "Authority":
        """Return the authority that was made in this folder before."""
        made = cls.__new__(cls)
        made._folder, made.pair = folder, pair_in(folder, name)
        return made

    def issue(self, name: str, subject: str = "", *, names: Sequence[str] = (), days: int = 30) -> Pair:
        """Return a certificate of `subject` (`/CN=name` where empty) for `names` such as `DNS:localhost`."""
        pair = pair_in(self._folder, name)
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(_EXTENSIONS + (f"subjectAltName={','.join(names)}\n" if names else ""))
        _openssl("req", "-newkey", *_CURVE, "-keyout", pair.key, "-out", request, "-subj", subject or f"/CN={name}")
        signer = ["-CA", self.pair.certificate, "-CAkey", self.pair.key, "-CAcreateserial"]
        files = ["-in", request, "-out", pair.certificate, "-extfile", extensions]
        _openssl("x509", "-req", *signer, *files, "-days", str(days))
        return pair


def signing_key(folder: Path) -> Pair:
    """Return an RSA key for service account tokens; its `certificate` is the public key."""
    pair = Pair(folder / "accounts.pub", folder / "accounts.key")
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", pair.key)
    _openssl("pkey", "-in", pair.key, "-pubout", "-out", pair.certificate)
    return pair


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr}"
