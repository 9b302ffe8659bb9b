// What tools do with crypto.subtle. jsguests_test.go runs it as a tool, and in
// Node, and compares.
const { subtle } = crypto;
const bytes = (text) => new TextEncoder().encode(text);
const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
const fill = (length, byte) => new Uint8Array(length).fill(byte);
const count = (first, length) => Uint8Array.from({ length }, (_, i) => first + i);
const hashes = ["SHA-1", "SHA-256", "SHA-384", "SHA-512"];
const hmac = (hash, secret, uses = ["sign", "verify"]) => subtle.importKey("raw", secret, { name: "HMAC", hash }, true, uses);
const derived = (name, secret, uses = ["deriveBits", "deriveKey"]) => subtle.importKey("raw", secret, name, false, uses);
// Node 20 has a name of its own for one of the errors, and another order of usages.
const failure = (promise) => promise.then(() => "no error", (error) =>
  [error.name.replace("AccessException", "AccessError"), error instanceof DOMException]);
const shown = async (promise) => {
  const { type, extractable, algorithm, usages } = await promise;
  return { type, extractable, name: algorithm.name, hash: algorithm.hash?.name, length: algorithm.length, usages: [...new Set(usages)].sort() };
};

// ---- what standards say ----

// FIPS 180-2 with its Change Notice, appendices A to D.
const long = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
const million = "a".repeat(1_000_000);
const digests = [
  ["SHA-1", "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"],
  ["SHA-1", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"],
  ["SHA-1", million, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"],
  ["SHA-256", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
  ["SHA-256", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"],
  ["SHA-256", million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"],
  ["SHA-384", "abc", "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"],
  ["SHA-384", long, "09330c33f71147e83d192fc782cd1b4753111b173b3b05d22fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039"],
  ["SHA-384", million, "9d0e1809716474cb086e834e310a4a1ced149e9c00f248527972cec5704c2a5b07b8b3dc38ecc4ebae97ddd87f3d8985"],
  ["SHA-512", "abc", "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"],
  ["SHA-512", long, "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
    + "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"],
  ["SHA-512", million, "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973eb"
    + "de0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b"],
];

// RFC 2202 for SHA-1, and RFC 4231 for the others: key, data, and what begins the result.
const what = bytes("what do ya want for nothing?"), first = bytes("Test Using Larger Than Block-Size Key - Hash Key First");
const both = bytes("This is a test using a larger than block-size key and a larger than block-size data. "
  + "The key needs to be hashed before being used by the HMAC algorithm.");
const macs = [
  ["SHA-1", fill(20, 0x0b), bytes("Hi There"), "b617318655057264e28bc0b6fb378c8ef146be00"],
  ["SHA-1", bytes("Jefe"), what, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"],
  ["SHA-1", fill(20, 0xaa), fill(50, 0xdd), "125d7342b9ac11cd91a39af48aa17b4f63f175d3"],
  ["SHA-1", count(1, 25), fill(50, 0xcd), "4c9007f4026250c6bc8414f9bf50c86c2d7235da"],
  ["SHA-1", fill(80, 0xaa), first, "aa4ae5e15272d00e95705637ce8a3b55ed402112"],
  ["SHA-1", fill(80, 0xaa), bytes("Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data"), "e8e99d0f45237d786d6bbaa7965c7808bbff1a91"],
  ["SHA-256", fill(20, 0x0b), bytes("Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"],
  ["SHA-384", fill(20, 0x0b), bytes("Hi There"), "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6"],
  ["SHA-512", fill(20, 0x0b), bytes("Hi There"), "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
    + "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"],
  ["SHA-256", bytes("Jefe"), what, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"],
  ["SHA-384", bytes("Jefe"), what, "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"],
  ["SHA-512", bytes("Jefe"), what, "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
    + "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"],
  ["SHA-256", fill(20, 0xaa), fill(50, 0xdd), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"],
  ["SHA-384", fill(20, 0xaa), fill(50, 0xdd), "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27"],
  ["SHA-512", fill(20, 0xaa), fill(50, 0xdd), "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39"
    + "bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb"],
  ["SHA-256", count(1, 25), fill(50, 0xcd), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"],
  ["SHA-256", fill(20, 0x0c), bytes("Test With Truncation"), "a3b6167473100ee06e0c796c2955552b"],
  ["SHA-384", fill(20, 0x0c), bytes("Test With Truncation"), "3abf34c3503b2a23a46efc619baef897"],
  ["SHA-512", fill(20, 0x0c), bytes("Test With Truncation"), "415fad6271580a531d4179bc891d87a6"],
  ["SHA-256", fill(131, 0xaa), first, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"],
  ["SHA-384", fill(131, 0xaa), first, "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952"],
  ["SHA-512", fill(131, 0xaa), first, "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352"
    + "6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598"],
  ["SHA-256", fill(131, 0xaa), both, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"],
  ["SHA-384", fill(131, 0xaa), both, "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e"],
  ["SHA-512", fill(131, 0xaa), both, "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944"
    + "b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58"],
];

// RFC 6070: password, salt, iterations, result.
const stretched = [
  ["password", "salt", 1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"],
  ["password", "salt", 2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"],
  ["password", "salt", 4096, "4b007901b765489abead49d926f721d065a429c1"],
  ["passwordPASSWORDpassword", "saltSALTsaltSALTsaltSALTsaltSALTsalt", 4096, "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038"],
  ["pass\0word", "sa\0lt", 4096, "56fa6aa75548099dcc37d7f03425e0c3"],
];

// RFC 5869, appendix A: hash, secret, salt, info, result.
const expanded = [
  ["SHA-256", fill(22, 0x0b), count(0, 13), count(0xf0, 10), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"],
  ["SHA-256", count(0, 80), count(0x60, 80), count(0xb0, 80), "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
    + "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"],
  ["SHA-256", fill(22, 0x0b), fill(0), fill(0), "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"],
  ["SHA-1", fill(11, 0x0b), count(0, 13), count(0xf0, 10), "085a01ea1b10f36933068b56efa5ad81a4f14b822f5b091568a9cdd4f155fda2c22e422478d305f3f896"],
  ["SHA-1", count(0, 80), count(0x60, 80), count(0xb0, 80), "0bd770a74d1160f7c9f12cd5912a06ebff6adcae899d92191fe4305673ba2ffe"
    + "8fa3f1a4e5ad79f3f334b3b202b2173c486ea37ce3d397ed034c7f9dfeb15c5e927336d0441f4c4300e2cff0d0900b52d3b4"],
  ["SHA-1", fill(22, 0x0b), fill(0), fill(0), "0ac1af7002b3d761d1e55298da9d0506b9ae52057220a306e07b6b87e8df21d0ea00033de03984d34918"],
];

// RFC 7515, appendix A.1; the examples in GitHub's guide to webhooks, and in Amazon's to
// Signature Version 4.
async function* signatures() {
  const secret = { kty: "oct", k: "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow" };
  const token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
  const key = await subtle.importKey("jwk", secret, algorithm, false, ["sign"]);
  yield ["7418dfb49799e0254ffa607dd8adbbba16d4254d69d6bff05b58055853848d79", await subtle.sign("HMAC", key, bytes(token))];
  const sign = async (key, text) => subtle.sign("HMAC", await hmac("SHA-256", key), bytes(text));
  yield ["757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", await sign(bytes("It's a Secret to Everybody"), "Hello, World!")];
  let chain = bytes("AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
  for (const part of ["20130524", "us-east-1", "s3", "aws4_request"]) chain = await sign(chain, part);
  yield ["f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", await sign(chain, "AWS4-HMAC-SHA256\n20130524T000000Z\n"
    + "20130524/us-east-1/s3/aws4_request\n7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972")];
}

async function* standards() {
  yield* signatures();
  for (const [name, text, want] of digests) yield [want, await subtle.digest(name, bytes(text))];
  for (const [hash, secret, data, want] of macs) yield [want, await subtle.sign("HMAC", await hmac(hash, secret), data)];
  for (const [password, salt, iterations, want] of stretched) {
    const parameters = { name: "PBKDF2", hash: "SHA-1", salt: bytes(salt), iterations };
    yield [want, await subtle.deriveBits(parameters, await derived("PBKDF2", bytes(password)), want.length * 4)];
  }
  for (const [hash, secret, salt, info, want] of expanded) {
    yield [want, await subtle.deriveBits({ name: "HKDF", hash, salt, info }, await derived("HKDF", secret), want.length * 4)];
  }
}

// ---- what Node does ----

const jwk = { kty: "oct", k: "AQIDBAUGBwg", alg: "HS256", key_ops: ["sign", "verify"], ext: true };
const algorithm = { name: "HMAC", hash: "SHA-256" };
const importJWK = (change, extractable = true, uses = ["sign"]) =>
  subtle.importKey("jwk", { ...jwk, ...change }, algorithm, extractable, uses);
const toJWK = async (key) => Object.fromEntries(Object.entries(await subtle.exportKey("jwk", key)).sort());

const cases = {
  async standards() {
    let right = 0;
    for await (const [want, got] of standards()) {
      if (!hex(got).startsWith(want)) throw new Error(`got ${hex(got)}, want ${want}`);
      right++;
    }
    return right;
  },

  // Every length around the ends of blocks.
  lengths: async () => Promise.all(hashes.map(async (name) => {
    let chain = fill(0);
    for (let i = 0; i <= 260; i++) chain = await subtle.digest(name, new Uint8Array([...new Uint8Array(chain), ...fill(i, i)]));
    return hex(chain);
  })),

  async views() {
    const { buffer } = count(0, 32);
    const views = [buffer, new Uint8Array(buffer, 3, 7), new DataView(buffer, 5, 6), new Uint16Array(buffer, 2, 4),
      new Float64Array(buffer, 8, 1), new BigInt64Array(buffer), new Uint8Array(buffer, 32)];
    const key = await hmac("SHA-512", new Uint8Array(buffer, 4, 9));
    return Promise.all(views.flatMap((view) => [subtle.digest("sha-256", view), subtle.sign("hmac", key, view)].map(async (made) => hex(await made))));
  },

  async verify() {
    const key = await hmac("SHA-256", bytes("k")), data = bytes("data"), right = new Uint8Array(await subtle.sign("HMAC", key, data));
    const given = [right, right.buffer, right.slice(0, 31), new Uint8Array([...right, 0]), fill(0), ...[0, 15, 31].map((i) => right.with(i, right[i] ^ 1))];
    const held = await Promise.all(given.map((signature) => subtle.verify(algorithm, key, signature, data)));
    return [...held, await subtle.verify("HMAC", key, right, bytes("date"))];
  },

  random() {
    const views = [new Uint8Array(65536), new Uint8ClampedArray(9), new Int32Array(3), new BigUint64Array(2), new Uint8Array(0), new Uint8Array(65537),
      new DataView(new ArrayBuffer(4)), new Float64Array(4)];
    return Promise.all(views.map((view) => failure((async () => crypto.getRandomValues(view))())));
  },

  // Each byte of the view is drawn, and none beside it.
  drawn() {
    const bytes = fill(300), seen = fill(300);
    for (let i = 0; i < 20; i++) crypto.getRandomValues(bytes.subarray(4, 284)).forEach((byte, at) => { seen[at + 4] |= byte; });
    return [seen.indexOf(0, 4), bytes.slice(0, 4), bytes.slice(284)].map((value) => (typeof value === "number" ? value : hex(value)));
  },

  // What is changed after the call has no effect.
  async copies() {
    const secret = bytes("secret"), data = bytes("data");
    const importing = hmac("SHA-1", secret), digesting = subtle.digest("SHA-1", data);
    secret.fill(0);
    data.fill(0);
    const key = await importing, exported = new Uint8Array(await subtle.exportKey("raw", key));
    exported.fill(1);
    return [hex(await digesting), hex(await subtle.exportKey("raw", key))];
  },

  async keys() {
    const generate = (name, hash, length, ...rest) => shown(subtle.generateKey({ name, hash, length }, ...rest));
    return [
      await shown(hmac({ name: "sha-384" }, fill(9, 1), ["verify", "sign", "verify"])),
      await shown(derived("pbkdf2", fill(0))), await shown(derived("HKDF", fill(3), ["deriveKey"])),
      await Promise.all(hashes.map((hash) => generate("hmac", hash, undefined, false, ["sign"]))),
      await generate("HMAC", { name: "SHA-1" }, 128, true, ["verify"]),
      await shown(subtle.importKey("raw", fill(9), { ...algorithm, length: 72 }, 1, new Set(["sign"]))),
      await importJWK({}).then((key) => Promise.all([toJWK(key), subtle.exportKey("raw", key).then(hex)])),
      await importJWK({ alg: undefined, key_ops: undefined, ext: undefined, use: "sig" }).then(toJWK),
      await importJWK({ ext: false }, false).then(shown),
      await Promise.all(hashes.map(async (hash) => (await subtle.exportKey("jwk", await hmac(hash, fill(1)))).alg)),
      String(await importJWK({})), (await importJWK({})) instanceof CryptoKey, Object.keys(await importJWK({})).length,
    ];
  },

  async derived() {
    const pbkdf2 = { name: "PBKDF2", hash: "SHA-512", salt: fill(4, 1), iterations: 3 };
    const hkdf = { name: "HKDF", hash: "SHA-384", salt: fill(4), info: fill(1) };
    const keys = [await derived("PBKDF2", bytes("p")), await derived("HKDF", bytes("p"))];
    const bits = await Promise.all([8, 512, 520, 1600].flatMap((length) =>
      [subtle.deriveBits(pbkdf2, keys[0], length), subtle.deriveBits(hkdf, keys[1], length)]));
    const made = await Promise.all([pbkdf2, hkdf].map((from, i) =>
      subtle.deriveKey(from, keys[i], { ...algorithm, length: i ? 128 : undefined }, true, ["sign"])));
    return [bits.map(hex), await Promise.all(made.map((key) => shown(key))), await Promise.all(made.map(async (key) => hex(await subtle.exportKey("raw", key))))];
  },

  errors: async () => Object.fromEntries(await Promise.all(Object.entries(await attempts()).map(async ([name, list]) =>
    [name, await Promise.all(list.map((attempt) => failure(attempt())))]))),

  // The specification, where Node 20 departs from it, and what is not there.
  async specified() {
    const key = await hmac("SHA-256", fill(4)), password = await derived("PBKDF2", fill(4)), iv = { name: "AES-GCM", iv: fill(12) };
    const failures = [
      () => subtle.importKey("pkcs8", fill(4), algorithm, true, ["sign"]),
      () => subtle.importKey("jwk", fill(4), algorithm, true, ["sign"]),
      () => importJWK({ k: "" }),
      () => importJWK({ k: "AQ==" }),
      () => importJWK({ key_ops: ["sign", "sign"] }),
      () => subtle.exportKey("jwk", password),
      () => subtle.exportKey("spki", key),
      () => subtle.encrypt(iv, key, fill(4)),
      () => subtle.generateKey({ name: "AES-GCM", length: 128 }, true, ["encrypt"]),
      async () => structuredClone(key),
      async () => crypto.getRandomValues([1, 2]),
    ].map(async (attempt) => (await failure(attempt()))[0]);
    const odd = await subtle.importKey("raw", fill(2, 0xff), { ...algorithm, length: 11 }, true, ["sign"]);
    const messages = [subtle.decrypt(iv, key, fill(4)), subtle.digest("MD5", fill(0))].map((promise) => promise.catch(({ message }) => message));
    const { usages } = await hmac("SHA-1", fill(1), ["verify", "sign", "verify"]);
    return { usages, odd: hex(await subtle.exportKey("raw", odd)), failures: await Promise.all(failures), messages: await Promise.all(messages) };
  },
};

// attempts are those that fail.
async function attempts() {
  const key = await hmac("SHA-256", fill(4)), signer = await hmac("SHA-256", fill(4), ["sign"]), hidden = await importJWK({}, false), none = fill(0);
  const password = await derived("PBKDF2", fill(4)), ikm = await derived("HKDF", fill(4), ["deriveKey"]);
  const raw = (algorithm, uses = ["sign"], extractable = false, secret = fill(4)) => subtle.importKey("raw", secret, algorithm, extractable, uses);
  const generate = (algorithm, uses = ["sign"]) => subtle.generateKey(algorithm, true, uses);
  const stretch = (change, key = password, length = 8) =>
    subtle.deriveBits({ name: "PBKDF2", hash: "SHA-256", salt: none, iterations: 1, ...change }, key, length);
  const expand = { name: "HKDF", hash: "SHA-1", salt: none, info: none };
  return {
    digest: [
      () => subtle.digest("MD5", none), () => subtle.digest({}, none), () => subtle.digest("SHA-256", "text"), () => subtle.digest("SHA-256"),
      () => subtle.digest("SHA-256", [1]), () => subtle.digest(undefined, none), () => subtle.digest("SHA256", none),
    ],
    sign: [
      () => subtle.sign("HMAC", hidden, none), () => subtle.sign("HKDF", key, none), () => subtle.sign({ name: "HMAC" }, {}, none),
      () => subtle.sign("HMAC", password, none), () => subtle.sign("HMAC", key, null),
      () => subtle.verify("HMAC", signer, none, none), () => subtle.verify("HMAC", key, "x", none),
    ],
    importKey: [
      () => raw("HMAC"), () => raw("nonsense"), () => raw({ name: "HMAC", hash: "MD5" }),
      ...[40, 24, -1, NaN].map((length) => () => raw({ ...algorithm, length })),
      ...[[], ["encrypt"], ["sing"], 5].map((uses) => () => raw(algorithm, uses)),
      () => raw(algorithm, ["sign"], false, none), () => raw(algorithm, ["sign"], false, jwk),
      () => raw("HKDF", ["deriveBits"], true), () => raw("PBKDF2", ["sign"]), () => raw("PBKDF2", []),
      () => subtle.importKey("der", none, algorithm, true, ["sign"]), () => subtle.importKey("jwk", jwk, "HKDF", false, ["deriveBits"]),
    ],
    jwk: [{ kty: "RSA" }, { kty: undefined }, { k: undefined }, { alg: "HS512" }, { use: "enc" }, { key_ops: ["verify"] }, { ext: false }]
      .map((change) => () => importJWK(change)),
    exportKey: [() => subtle.exportKey("raw", hidden), () => subtle.exportKey("der", key), () => subtle.exportKey("raw", {})],
    generateKey: [
      () => generate(algorithm, []), () => generate(algorithm, ["deriveBits"]), () => generate("HMAC"),
      () => generate({ ...algorithm, length: 0 }), () => generate("HKDF", ["deriveKey"]),
    ],
    derive: [
      () => stretch({}, password, 9), () => stretch({}, password, null), () => stretch({}, key), () => stretch({}, ikm),
      ...[{ iterations: 0 }, { iterations: undefined }, { salt: "salt" }, { salt: undefined }, { hash: undefined }].map((change) => () => stretch(change)),
      () => subtle.deriveBits(expand, ikm, 8), () => subtle.deriveKey(expand, ikm, "HKDF", false, ["deriveBits"]),
      () => subtle.deriveKey(expand, ikm, { ...algorithm, length: 255 * 160 + 8 }, false, ["sign"]),
    ],
    made: [async () => new CryptoKey(), async () => new CryptoKey({})],
  };
}

export default {
  name: "subtle",
  inputSchema: { type: "object", properties: { case: { type: "string" } }, required: ["case"] },
  execute: (input) => cases[input.case](),
};
