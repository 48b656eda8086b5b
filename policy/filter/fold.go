package filter

import (
	"bytes"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// appendFold appends s with every character replaced by one that stands for all its cases. Two texts are equal without
// regard to case, as strings.EqualFold has it, exactly if what is appended for them is equal; and as it is UTF-8 again,
// the same holds for their beginnings, ends and parts.
func appendFold[T []byte | string](dst []byte, s T) []byte {
	start := len(dst)
	dst = append(dst, s...)
	for i := start; i < len(dst); i++ {
		c := dst[i]
		if c >= utf8.RuneSelf {
			return appendFoldRunes(dst[:i], []byte(s[i-start:]))
		}
		if 'a' <= c && c <= 'z' {
			dst[i] = c - ('a' - 'A')
		}
	}
	return dst
}

func appendFoldRunes(dst, s []byte) []byte {
	for len(s) > 0 {
		r, width := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, foldRune(r))
		s = s[width:]
	}
	return dst
}

// foldRune returns the smallest of a character's cases: 'K' for 'K', 'k' and the Kelvin sign.
func foldRune(r rune) rune {
	smallest := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		smallest = min(smallest, other)
	}
	return smallest
}

// unescape decodes the inside of a JSON string. Without escapes, which is the rule, it returns raw itself. A lone
// surrogate half becomes U+FFFD, as in every reader that must produce UTF-8, and is reported.
func unescape(raw []byte) (text []byte, lone bool) {
	at := bytes.IndexByte(raw, '\\')
	if at < 0 {
		return raw, false
	}
	text = make([]byte, 0, len(raw))
	for at >= 0 {
		text = append(text, raw[:at]...)
		r, width, broken := unescapeOne(raw[at:])
		text, lone = utf8.AppendRune(text, r), lone || broken
		raw = raw[at+width:]
		at = bytes.IndexByte(raw, '\\')
	}
	return append(text, raw...), lone
}

// unescapeOne decodes the escape sequence, or the pair of surrogate halves, that b starts with.
func unescapeOne(b []byte) (r rune, width int, lone bool) {
	if len(b) < 2 {
		return utf8.RuneError, len(b), true
	}
	switch b[1] {
	case 'b':
		return '\b', 2, false
	case 'f':
		return '\f', 2, false
	case 'n':
		return '\n', 2, false
	case 'r':
		return '\r', 2, false
	case 't':
		return '\t', 2, false
	case 'u':
		return unescapeUnicode(b)
	}
	return rune(b[1]), 2, false
}

func unescapeUnicode(b []byte) (r rune, width int, lone bool) {
	r = hex4(b)
	if !utf16.IsSurrogate(r) {
		return r, min(6, len(b)), false
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[6:])); pair != utf8.RuneError {
			return pair, 12, false
		}
	}
	return utf8.RuneError, min(6, len(b)), true
}

// hex4 reads the digits of an escape like \u00e4.
func hex4(b []byte) (r rune) {
	for _, c := range b[2:min(6, len(b))] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		}
		r = r<<4 | rune(c&15)
	}
	return r
}
