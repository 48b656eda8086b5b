package filter

import (
	"unicode"
	"unicode/utf8"
)

// appendFold appends s with every character replaced by one that represents all its cases. Two texts are equal by
// strings.EqualFold if and only if their folded texts are equal. The same is true of prefixes, suffixes and parts,
// because the result is UTF-8.
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
		// The smallest of a character's cases: 'K' for 'K', 'k' and the Kelvin sign.
		smallest := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		dst = utf8.AppendRune(dst, smallest)
		s = s[width:]
	}
	return dst
}
