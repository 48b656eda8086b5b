package store

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ccojocar/zxcvbn-go"
	"github.com/ccojocar/zxcvbn-go/match"
	"github.com/ccojocar/zxcvbn-go/matching"
	"github.com/ccojocar/zxcvbn-go/scoring"
)

const (
	// leastStrength is zxcvbn's "safely unguessable": 10^10 guesses, which take ten years of a core with our hash.
	leastStrength = 3
	// ratedBytes of a password are rated, which takes 3 ms; the time grows with the third power. The rest only adds strength.
	ratedBytes = 64
	// leastPart is the length from which a part of a user's name counts as known.
	leastPart = 3
)

// plainLetters undoes the usual substitutions. zxcvbn's own matcher of them tries all combinations: seconds for one password.
var plainLetters = strings.NewReplacer("0", "o", "1", "i", "3", "e", "4", "a", "5", "s", "7", "t", "8", "b", "@", "a", "$", "s", "!", "i")

// checkStrength rejects a password that is easy to guess for this user, and names what is weak without repeating any of it.
func checkStrength(name, password string) error {
	rated := password
	if len(rated) > ratedBytes {
		rated = rated[:ratedBytes]
		for !utf8.ValidString(rated) {
			rated = rated[:len(rated)-1]
		}
	}
	known := knownParts(name)
	for _, spelling := range []string{rated, plainLetters.Replace(rated)} {
		found := zxcvbn.PasswordStrength(spelling, known, matching.FilterL33tMatcher)
		if found.Score < leastStrength {
			return refusal(ErrInvalid, "password",
				"password is too easy to guess: it consists mostly of %s; use four or more unrelated words, or let a password manager make one", weaknesses(&found))
		}
	}
	return nil
}

// knownParts are what an attacker tries first: the user's name, its parts and the product's name.
func knownParts(name string) []string {
	name = strings.ToLower(name)
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("._@-", r) })
	parts = slices.DeleteFunc(parts, func(part string) bool { return len(part) < leastPart })
	return append(parts, name, "postrider")
}

// weaknesses names the patterns in a password.
func weaknesses(found *scoring.MinEntropyMatch) string {
	var kinds []string
	for i := range found.MatchSequence {
		if kind := weakness(&found.MatchSequence[i]); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if last := len(kinds) - 1; last > 0 {
		return strings.Join(kinds[:last], ", ") + " and " + kinds[last]
	}
	return strings.Join(kinds, "")
}

func weakness(m *match.Match) string {
	switch {
	case m.DictionaryName == "user_inputs":
		return "the user's or the product's name"
	case m.DictionaryName == "Passwords":
		return "common passwords"
	case m.Pattern == "dictionary":
		return "common words or names"
	case m.Pattern == "spatial":
		return "neighboring keys"
	case m.Pattern == "repeat":
		return "repeated characters"
	case m.Pattern == "sequence":
		return "sequences such as abc or 123"
	case strings.HasPrefix(m.Pattern, "date"):
		return "dates"
	default:
		return "few other characters"
	}
}
