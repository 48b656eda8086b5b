package display

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible writes invisible characters as [U+202E]. Escaped text is no markup, but it can still deceive: a right-to-left
// override shows "exe.png" for an id that ends in "gnp.exe", and a zero-width space makes two ids look like one.
// Joiners stay, because scripts and emoji need them.
func Visible(text string) string {
	if strings.IndexFunc(text, IsHidden) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if IsHidden(r) {
			fmt.Fprintf(&out, "[U+%04X]", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// IsHidden reports whether a character is invisible, or changes how others are shown.
func IsHidden(r rune) bool {
	switch r {
	case '\t', '\r', '\n':
		return false
	case '\u200b', '\u2060', '\ufeff': // zero width
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
