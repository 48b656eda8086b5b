package jsonscan

import (
	"bytes"
	"unicode/utf8"
)

// Position returns the line and the column of a byte of a text, as editors count them: from 1, in characters.
func Position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
