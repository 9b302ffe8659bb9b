// Checks receipts with libraries that know nothing of starling-host:
//   npm install --omit=optional && node verify.mjs seal.pem < dice.receipt
import { createHash, createPublicKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { bundleFromJSON } from '@sigstore/bundle'
import { toSignedEntity, toTrustMaterial, Verifier } from '@sigstore/verify'
import { Sign1 } from '@auth0/cose'
import { decode } from 'cbor-x'

const publicKey = createPublicKey(readFileSync(process.argv[2]))
const trust = toTrustMaterial({ certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] }, () => ({ publicKey, validFor: () => true }))
const verifier = new Verifier(trust, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 })
const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest()

/** verify returns the statement of a receipt. */
async function verify({ payloadType, payload, signatures, leaf, coseReceipt }) {
  verifier.verify(toSignedEntity(bundleFromJSON({
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    verificationMaterial: { publicKey: { hint: signatures[0].keyid }, tlogEntries: [] },
    dsseEnvelope: { payloadType, payload, signatures },
  })))
  const statement = JSON.parse(Buffer.from(payload, 'base64'))
  if (coseReceipt) await verifyCOSE(Buffer.from(coseReceipt, 'base64'), Buffer.from(leaf, 'base64'), statement)
  return statement
}

/** verifyCOSE checks that the leaf is in the tree whose root the COSE receipt signs (RFC 9942). */
async function verifyCOSE(receipt, leaf, { subject }) {
  if (subject.at(-1).digest.sha256 !== sha256(leaf).toString('hex')) throw new Error('the statement is about another leaf')
  const message = Sign1.decode(receipt)
  const [proof] = message.unprotectedHeaders.get(396).get(-1)
  const [size, index, path] = decode(proof)
  await message.verify(publicKey, { detachedPayload: rootOf(leaf, Number(index), Number(size), path) })
}

/** rootOf computes the root of a tree from a leaf and its inclusion path (RFC 9162, section 2.1.3.2). */
function rootOf(leaf, index, size, path) {
  let hash = sha256(Buffer.of(0), leaf)
  let last = size - 1
  if (index > last) throw new Error('the leaf is not in the tree')
  for (const sibling of path) {
    if (last === 0) throw new Error('the path is too long')
    if (index % 2 === 1 || index === last) {
      hash = sha256(Buffer.of(1), sibling, hash)
      while (index % 2 === 0 && index !== 0) [index, last] = [index >> 1, last >> 1]
    } else {
      hash = sha256(Buffer.of(1), hash, sibling)
    }
    [index, last] = [index >> 1, last >> 1]
  }
  if (last !== 0) throw new Error('the path is too short')
  return hash
}

let code = 0
for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log('verified:', Buffer.from(JSON.stringify(await verify(JSON.parse(line)))).toString('base64'))
  } catch (err) {
    console.log('refused:', err.message.split('\n')[0])
    code = 1
  }
}
process.exit(code)
