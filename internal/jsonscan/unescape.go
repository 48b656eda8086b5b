package jsonscan

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The escape sequences of one character, and what they stand for.
const (
	escapes   = `"\/bfnrt`
	unescaped = "\"\\/\b\f\n\r\t"
)

// Unescape decodes the inside of a string that a Scanner has read. Without escapes, as usual, it returns raw itself. A
// lone surrogate half becomes U+FFFD, as in every reader that must produce UTF-8, and is reported.
func Unescape(raw []byte) (text []byte, lone bool) {
	at := bytes.IndexByte(raw, '\\')
	if at < 0 {
		return raw, false
	}
	text = make([]byte, 0, len(raw))
	for ; at >= 0; at = bytes.IndexByte(raw, '\\') {
		r, n := unescapeOne(raw[at:])
		if n == 0 { // no Scanner accepts it
			break
		}
		if r < 0 {
			r, lone = utf8.RuneError, true
		}
		text = utf8.AppendRune(append(text, raw[:at]...), r)
		raw = raw[at+n:]
	}
	return append(text, raw...), lone
}

// unescapeOne decodes the escape sequence, or the pair of surrogate halves, that b starts with, and returns its length.
// r is -1 for a lone half.
func unescapeOne(b []byte) (r rune, n int) {
	switch n = escapeLen(b); n {
	case 2:
		return rune(unescaped[strings.IndexByte(escapes, b[1])]), 2
	case 6:
		r, _ = hex4(b)
	}
	if !utf16.IsSurrogate(r) {
		return r, n
	}
	if escapeLen(b[6:]) == 6 {
		low, _ := hex4(b[6:])
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return -1, 6
}

// escapeLen returns the length of the escape sequence that b starts with, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if strings.IndexByte(escapes, b[1]) >= 0 {
		return 2
	}
	if _, ok := hex4(b); ok {
		return 6
	}
	return 0
}

// hex4 reads an escape like \u00e4.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var v [2]byte
	_, err := hex.Decode(v[:], b[2:6])
	return rune(v[0])<<8 | rune(v[1]), err == nil
}
