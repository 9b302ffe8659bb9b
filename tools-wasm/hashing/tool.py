"""Digests, keyed digests and encodings of bytes."""

import base64
import binascii
import hashlib
import hmac
import zlib
from typing import Literal, TypedDict

import starling

MOST = 1_000_000  # bytes of input

Form = Literal["text", "hex", "base64", "base64url", "base32"]
Algorithm = Literal["sha256", "sha224", "sha384", "sha512", "sha3_256", "sha3_512", "blake2b", "blake2s", "sha1", "md5", "crc32", "adler32"]


class Digest(TypedDict):
    digest: str
    algorithm: str
    bytes: int
    matches: bool | None


class Encoded(TypedDict):
    data: str
    bytes: int


def hash_data(data: str, algorithm: Algorithm = "sha256", data_form: Form = "text", key: str | None = None,
              key_form: Form = "text", digest_form: Literal["hex", "base64", "base64url"] = "hex", expected: str | None = None) -> Digest:
    """Computes a digest (SHA-2, SHA-3, BLAKE2, SHA-1, MD5, CRC-32) of text or bytes, or an HMAC if there is a key.

    `matches` is whether the digest is the expected one, or null. Use sha1 and md5 only to compare with old checksums.

    data: The data in the form of data_form; text is hashed as UTF-8, without adding a line break
    key: The key of an HMAC. It is recorded with the call, so do not use a secret of production
    digest_form: How to write the digest
    expected: The digest to compare with, in the form of digest_form
    """
    raw = read("data", data, data_form)
    if algorithm in ("crc32", "adler32"):
        if key is not None:
            raise starling.discard(f"key: {algorithm} is a checksum and takes no key; hint: use sha256")
        digest = getattr(zlib, algorithm)(raw).to_bytes(4, "big")
    elif key is not None:
        digest = hmac.new(read("key", key, key_form), raw, algorithm).digest()
    else:
        digest = hashlib.new(algorithm, raw).digest()
    matches = None if expected is None else hmac.compare_digest(read("expected", expected, digest_form), digest)
    return {"digest": write(digest, digest_form), "algorithm": ("hmac-" if key is not None else "") + algorithm, "bytes": len(raw), "matches": matches}


def convert_bytes(data: str, source: Form, target: Form) -> Encoded:
    """Converts bytes between text (UTF-8), hex, Base64, URL-safe Base64 and Base32. Missing padding and line breaks are accepted.

    data: The bytes in the form of source
    """
    raw = read("data", data, source)
    return {"data": write(raw, target), "bytes": len(raw)}


def read(name, text, form):
    if len(text) > 2 * MOST:
        raise starling.discard(f"{name}: {len(text)} characters; the limit is {MOST} bytes")
    if form == "text":
        raw = text.encode()
    else:
        compact = "".join(text.split())
        allowed, hint = {
            "hex": ("0123456789abcdefABCDEF", "hex has the digits 0-9 and a-f"),
            "base64": (LETTERS + "+/", "Base64 with - and _ is the form base64url"),
            "base64url": (LETTERS + "-_", "Base64 with + and / is the form base64"),
            "base32": ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz234567", "Base32 has the letters and the digits 2-7"),
        }[form]
        body = compact if form == "hex" else compact.rstrip("=")
        if rest := body.lstrip(allowed):
            raise starling.discard(f"{name}: {rest[0]!r} at character {len(body) - len(rest) + 1} is not {form}; hint: {hint}")
        try:
            match form:
                case "hex":
                    raw = bytes.fromhex(body)
                case "base32":
                    raw = base64.b32decode(body.upper() + "=" * (-len(body) % 8))
                case _:
                    raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars="-_" if form == "base64url" else None)
        except (ValueError, binascii.Error):
            raise starling.discard(f"{name}: {len(body)} characters are not a whole number of bytes in {form}; hint: the end may be cut off") from None
    if len(raw) > MOST:
        raise starling.discard(f"{name}: {len(raw)} bytes; the limit is {MOST}")
    return raw


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def write(raw, form):
    match form:
        case "text":
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise starling.discard(f"data: byte {error.start + 1} of {len(raw)} is not UTF-8 text; hint: use the target hex or base64") from None
        case "hex":
            return raw.hex()
        case "base32":
            return base64.b32encode(raw).decode()
        case "base64url":
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        case _:
            return base64.b64encode(raw).decode()
