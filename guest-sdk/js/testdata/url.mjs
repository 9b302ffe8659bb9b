// Compares runtime/url.js with Node's URL and URLSearchParams. What the former
// refuses on purpose (other schemes, a scheme without a host) is not in the list.
import assert from "node:assert";
import * as ours from "../runtime/url.js";

const urls = [
  "http://h", "http://h/", "http://H:80/x", "https://h:443/x", "http://h:8080", "http://host99999/", "http://[::1]:8080/",
  "http://h:65535", "http://h:65536", "http://h:", "http://", "http://a_b.c/", "http://1.2.3.4/", "http://u:p@h/x", "http://u@h",
  "http://h/a/../b/./c/..", "http://h/a/..", "http://h/.", "http://h/%2e%2E/a", "http://h/a//b", "http://h/a\\b",
  "http://h/a b", "http://h/ä?ö=ü#ß", "http://h/😀?😀#😀", "http://h/a%zz", "http://h/a?b'c\"d<e>", "http://h/#\"<>`",
  "http://h/{x}`y`|z^", "http://h/?{x}`y`|z^", "http://h/~x!$&'()*+,;=:@", "http://h/[x]", "http://h?q=1#f", "http://h#f",
  " http://h/ ", "http://h/\n\tx", "HTTP://EXAMPLE.com/A", "//x/y", "/p", "p", "../p", "./", "..", "a/b/../c", "?q", "#f", "",
];
const bases = [undefined, "http://b/x/y?z#w", "https://b:8443/", "http://u:p@b/x"];

function parts(URL, ...args) {
  try {
    const { href, protocol, username, password, host, hostname, port, pathname, search, hash, origin } = new URL(...args);
    return { href, protocol, username, password, host, hostname, port, pathname, search, hash, origin };
  } catch (error) {
    return error.name;
  }
}

for (const base of bases) {
  for (const url of urls) assert.deepEqual(parts(ours.URL, url, base), parts(URL, url, base), `${url} from ${base}`);
}

for (const query of ["", "a=1&b=2", "?a=1", "a=%20+&b", "=x", "&&a", "a=b=c", "ä=ü", "a=%C3%A4", "x=~!'()*-._", "a=1&b=2&a=3"]) {
  const lists = [ours.URLSearchParams, URLSearchParams].map((Class) => {
    const params = new Class(query);
    const before = [...params];
    params.set("a", "ä &");
    params.append("z", 1);
    params.delete("b");
    params.sort();
    return [before, [...params], String(params), params.get("a"), params.getAll("x"), params.has("q"), params.size];
  });
  assert.deepEqual(lists[0], lists[1], query);
}
