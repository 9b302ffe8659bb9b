# Checks receipts with Python's own library and cryptography:
#   pip install cryptography && python3 verify.py seal.pem < dice.receipt
import base64, hashlib, json, sys
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_public_key

key = load_pem_public_key(open(sys.argv[1], "rb").read())


def verify(receipt):
    """Return the statement of a receipt (DSSE v1)."""
    kind, payload = receipt["payloadType"].encode(), base64.b64decode(receipt["payload"], validate=True)
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key.verify(base64.b64decode(receipt["signatures"][0]["sig"], validate=True), message)
    statement = json.loads(payload)
    if "tlogProof" in receipt:
        verify_proof(receipt, statement)
    return statement


def verify_proof(receipt, statement):
    """Check that the leaf is in the signed checkpoint (C2SP tlog-proof, signed-note, tlog-checkpoint)."""
    leaf = base64.b64decode(receipt["leaf"], validate=True)
    if statement["subject"][-1]["digest"]["sha256"] != hashlib.sha256(leaf).hexdigest():
        raise ValueError("the statement is about another leaf")
    head, _, note = receipt["tlogProof"].partition("\n\n")
    index, path = int(head.split("\n")[1].removeprefix("index ")), [base64.b64decode(h) for h in head.split("\n")[2:]]
    text, _, signatures = note.partition("\n\n")
    key.verify(base64.b64decode(signatures.split(" ")[2].split("\n")[0])[4:], text.encode() + b"\n")
    origin, size, root = text.split("\n")
    if root_of(leaf, index, int(size), path) != base64.b64decode(root):
        raise ValueError("the leaf is not in the tree of " + origin)


def root_of(leaf, index, size, path):
    """Compute the root of a tree from a leaf and its inclusion path (RFC 9162, section 2.1.3.2)."""
    hashed, last = hashlib.sha256(b"\0" + leaf).digest(), size - 1
    for sibling in path:
        if index & 1 or index == last:
            hashed = hashlib.sha256(b"\1" + sibling + hashed).digest()
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            hashed = hashlib.sha256(b"\1" + hashed + sibling).digest()
        index, last = index >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return hashed


code = 0
for line in sys.stdin:
    try:
        print("verified:", base64.b64encode(json.dumps(verify(json.loads(line)), separators=(",", ":"), ensure_ascii=False).encode()).decode())
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, InvalidSignature) as err:
        print("refused:", err or "wrong signature")
        code = 1
sys.exit(code)
