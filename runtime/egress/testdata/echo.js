// An echo server that reads a request in every way that Node knows; see echo.py.
const http = require('http'), zlib = require('zlib');
const labels = ['utf-8', 'utf-16le', 'utf-16be', 'ibm866', 'iso-8859-2', 'iso-8859-8', 'koi8-r', 'macintosh', 'windows-874',
  'windows-1252', 'x-mac-cyrillic', 'gbk', 'gb18030', 'big5', 'euc-jp', 'iso-2022-jp', 'shift_jis', 'euc-kr', 'gb2312', 'utf-7', 'hz-gb-2312', 'iso-2022-kr']
  .filter((l) => { try { new TextDecoder(l); return true; } catch { return false; } });
const attempt = (f) => { try { return f(); } catch (e) { return 'error: ' + e.message; } };
const server = http.createServer((req, res) => {
  const chunks = [];
  req.on('data', (c) => chunks.push(c)).on('end', () => {
    const body = Buffer.concat(chunks), latin = body.toString('latin1');
    const everything = JSON.stringify(req.headers) + attempt(() => unescape(req.url)) + latin + unescape(latin);
    const named = labels.filter((l) => everything.toLowerCase().includes(l));
    const raws = [body];
    for (const open of ['gunzipSync', 'inflateSync', 'inflateRawSync', 'brotliDecompressSync', 'zstdDecompressSync']) {
      try { raws.push(zlib[open](body)); } catch {}
    }
    const texts = [JSON.stringify(req.headers), req.url];
    for (const raw of raws) {
      for (const l of ['utf-8', ...named]) texts.push(new TextDecoder(l).decode(raw));
      for (const l of ['latin1', 'utf16le', 'ascii'].filter((l) => l === 'latin1' || everything.includes(l))) texts.push(raw.toString(l));
    }
    for (const t of [...texts]) {
      texts.push(attempt(() => decodeURIComponent(t)), unescape(t), t.normalize('NFC'));
      // A parser's error quotes a piece of what it got; a body of this type has to be JSON.
      if (/json/.test(req.headers['content-type'])) texts.push(attempt(() => JSON.stringify(JSON.parse(body))));
      texts.push(...[...new URLSearchParams(t)].flat());
    }
    for (const l of named) { // bytes of a form in another charset
      const bytes = Buffer.from(unescape(latin + '&' + req.url), 'latin1');
      texts.push(new TextDecoder(l).decode(bytes));
    }
    res.end(JSON.stringify(texts));
  });
}).listen(0, '127.0.0.1', () => console.log([server.address().port, ...labels].join(' ')));
