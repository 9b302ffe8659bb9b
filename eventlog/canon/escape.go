package canon

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf16"
)

// escape reads one escape sequence and returns its character.
func (p *parser) escape() (rune, error) {
	const letters, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if p.pos+1 == len(p.doc) {
		return 0, p.fail("the document ends inside an escape", "")
	}
	c := p.doc[p.pos+1]
	if c == 'u' {
		return p.unicodeEscape()
	}
	i := strings.IndexByte(letters, c)
	if i < 0 {
		return 0, p.fail("unknown escape", `use one of \" \\ \/ \b \f \n \r \t \uXXXX`)
	}
	p.pos += 2
	return rune(meaning[i]), nil
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair.
func (p *parser) unicodeEscape() (rune, error) {
	r, ok := p.unit(p.pos)
	if !ok {
		return 0, p.fail("incomplete escape", `\u takes four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(r) {
		p.pos += 6
		return r, nil
	}
	low, _ := p.unit(p.pos + 6)
	r = utf16.DecodeRune(r, low)
	if r == unicode.ReplacementChar { // which no pair stands for
		return 0, p.fail("half of a surrogate pair: "+string(p.doc[p.pos:p.pos+6]),
			`a pair is one of \ud800 to \udbff, then one of \udc00 to \udfff`)
	}
	p.pos += 12
	return r, nil
}

// unit is the value of the \uXXXX at position at.
func (p *parser) unit(at int) (rune, bool) {
	if at+6 > len(p.doc) || p.doc[at] != '\\' || p.doc[at+1] != 'u' {
		return 0, false
	}
	var b [2]byte
	if _, err := hex.Decode(b[:], p.doc[at+2:at+6]); err != nil {
		return 0, false
	}
	return rune(binary.BigEndian.Uint16(b[:])), true
}
