package access

import (
	_ "embed" // commonPasswords
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/internal/postgres"
)

// commonPasswords are 3,200 frequent passwords, names and English words of 4 to 12 letters or digits, without obscene
// ones: lowercase, sorted, one a line.
//
//go:embed commonpasswords.txt
var commonPasswords string

const (
	// leastStrength is 10^10 guesses, which take ten years of a core with our hash.
	leastStrength = 10
	// ratedBytes of a password are rated, which takes 1 ms: the time grows with the third power.
	ratedBytes = 64
	// leastPart is the length from which a part of a user's name counts as known.
	leastPart    = 3
	keyboardRows = "`1234567890-=\n~!@#$%^&*()_+\nqwertyuiop[]\\\nasdfghjkl;'\nzxcvbnm,./\n" +
		"=-0987654321`\n+_)(*&^%$#@!~\n\\][poiuytrewq\n';lkjhgfdsa\n/.,mnbvcxz"
)

// plainLetters undoes the usual substitutions.
var plainLetters = strings.NewReplacer("0", "o", "1", "i", "3", "e", "4", "a", "5", "s", "7", "t", "8", "b",
	"@", "a", "$", "s", "!", "i")

// checkStrength rejects a password that is easy to guess for this user. The error has no part of it. The strength is
// about the decimal logarithm of the necessary guesses: that of the password in lowercase, or with the usual
// substitutions undone, whichever is smaller.
//
// zxcvbn is more precise, but its Go ports load their dictionaries at each start: 40 ms and 30 MB of resident memory.
// This list is 23 kB of the program.
func checkStrength(name, password string) error {
	rated := strings.ToLower(password)
	rated = strings.ToValidUTF8(rated[:min(len(rated), ratedBytes)], "")
	known := knownParts(name)
	if min(strengthOf(rated, known), strengthOf(plainLetters.Replace(rated), known)) >= leastStrength {
		return nil
	}
	return postgres.Invalid("password",
		"password is too easy to guess: avoid names, common words, keyboard rows, "+
			"sequences and dates; use four or more unrelated words, or let a password manager create one")
}

// knownParts are the guesses that an attacker tries first: the user's name, its parts and the product's name.
func knownParts(name string) []string {
	name = strings.ToLower(name)
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("._@-", r) })
	parts = slices.DeleteFunc(parts, func(part string) bool { return len(part) < leastPart })
	return append(parts, name, "postrider")
}

// strengthOf returns the smallest sum of the parts that the text can be divided into: a known part counts 1, a pattern
// of any length 2, a common word 3, any other character 1.
func strengthOf(text string, known []string) int {
	least := make([]int, len(text)+1) // of the text from each position on
	for at := len(text) - 1; at >= 0; at-- {
		least[at] = least[at+1]
		if !utf8.RuneStart(text[at]) {
			continue
		}
		least[at]++
		for end := at + 2; end <= len(text); end++ {
			if part := text[at:end]; slices.Contains(known, part) {
				least[at] = min(least[at], 1+least[end])
			} else if isPattern(part, text[:end-1]) {
				least[at] = min(least[at], 2+least[end])
			} else if isCommon(part) {
				least[at] = min(least[at], 3+least[end])
			}
		}
	}
	return least[0]
}

// isPattern reports whether part is a number or a date of at least 2 characters, at least 4 neighboring keys of a
// keyboard row, or at least 3 characters that are a sequence or a repetition of earlier ones.
func isPattern(part, before string) bool {
	return strings.Trim(part, "0123456789.-/") == "" ||
		len(part) > 3 && strings.Contains(keyboardRows, part) ||
		len(part) > 2 && (isSequence(part) || utf8.ValidString(part) && strings.Contains(before, part))
}

// isSequence reports whether the bytes ascend or descend by one.
func isSequence(part string) bool {
	step := part[1] - part[0]
	for i := 1; i < len(part); i++ {
		if part[i]-part[i-1] != step {
			return false
		}
	}
	return step == 1 || step == 255
}

// isCommon is a binary search in the list.
func isCommon(word string) bool {
	if len(word) < 4 || len(word) > 12 {
		return false
	}
	low, high := 0, len(commonPasswords)
	for low < high {
		start := 1 + strings.LastIndexByte(commonPasswords[:(low+high)/2], '\n')
		if line, _, _ := strings.Cut(commonPasswords[start:], "\n"); line < word {
			low = start + len(line) + 1
		} else {
			high = start
		}
	}
	return strings.HasPrefix(commonPasswords[low:], word+"\n")
}
