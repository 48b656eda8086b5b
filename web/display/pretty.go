package display

import "strings"

// maxIndent is how deep lines are indented. Nobody reads deeper; and without an end, 4,000 opening brackets, which
// anybody may publish, would become 16 MB of spaces.
const maxIndent = 16

// Pretty breaks JSON into lines for reading. It changes nothing but white space between tokens: numbers and escapes
// stay as the publisher wrote them. encoding/json's Indent would refuse a body that was cut short; this takes any text.
func Pretty(text string) string {
	p := prettyPrinter{text: text}
	for i := 0; i < len(text); i++ {
		i = p.step(i)
	}
	return p.out.String()
}

type prettyPrinter struct {
	text  string
	out   strings.Builder
	depth int
}

// step prints the token at i and returns the index of its last byte.
func (p *prettyPrinter) step(i int) int {
	switch b := p.text[i]; b {
	case '"':
		end := stringEnd(p.text, i)
		p.out.WriteString(p.text[i : end+1])
		return end
	case '{', '[':
		return p.open(i)
	case '}', ']':
		p.depth--
		p.newLine()
		p.out.WriteByte(b)
	case ',':
		p.out.WriteByte(b)
		p.newLine()
	case ':':
		p.out.WriteString(": ")
	case ' ', '\t', '\r', '\n':
	default:
		p.out.WriteByte(b)
	}
	return i
}

// open keeps {} and [] on one line.
func (p *prettyPrinter) open(i int) int {
	p.out.WriteByte(p.text[i])
	if rest := strings.TrimLeft(p.text[i+1:], " \t\r\n"); rest != "" && (rest[0] == '}' || rest[0] == ']') {
		p.out.WriteByte(rest[0])
		return len(p.text) - len(rest)
	}
	p.depth++
	p.newLine()
	return i
}

func (p *prettyPrinter) newLine() {
	p.out.WriteByte('\n')
	p.out.WriteString(strings.Repeat("  ", min(max(p.depth, 0), maxIndent)))
}

// stringEnd is the index of the quote that closes the string beginning at i, or the last index of a text that was cut
// inside it.
func stringEnd(text string, i int) int {
	for end := i + 1; end < len(text); end++ {
		switch text[end] {
		case '\\':
			end++
		case '"':
			return end
		}
	}
	return len(text) - 1
}
