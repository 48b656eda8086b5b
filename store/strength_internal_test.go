package store

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckStrength(t *testing.T) {
	t.Parallel()
	for password, weak := range map[string]string{
		"password1234":       "common passwords",
		"Password123!":       "common passwords, sequences such as abc or 123",
		"P@ssw0rd2026!!":     "common passwords",
		"passwordpassword":   "common passwords",
		"changemechangeme":   "common passwords",
		"qwertyuiop12":       "common passwords",
		"zaq12wsxcde3":       "neighboring keys",
		"aaaaaaaaaaaaaaaa":   "repeated characters",
		"abcabcabcabc":       "sequences such as abc or 123",
		"adminadminadmin":    "common passwords",
		"anna.smith1990":     "the user's or the product's name",
		"Anna.Smith1990!":    "the user's or the product's name",
		"smithsmithsmith":    "common words or names",
		"postrider2026":      "the user's or the product's name",
		"P0str1der-@dm1n":    "the user's or the product's name",
		"anna-postrider":     "the user's or the product's name",
		"another password":   "common words or names",
		"welcometopostrider": "the user's or the product's name",
	} {
		err := checkStrength("anna.smith", password)
		require.ErrorIs(t, err, ErrInvalid, password)
		require.ErrorContains(t, err, "password is too easy to guess: it consists mostly of ", password)
		require.ErrorContains(t, err, weak, password)
		require.ErrorContains(t, err, "use four or more unrelated words", password)
		require.NotContains(t, err.Error(), password)
	}
	for _, good := range []string{
		"correct horse battery", "twelve horses at least", "xkq93mzp71lw", "kS8v0w1JrQ2ZbV5n", "grüne Äpfel fliegen nachts", strings.Repeat("日本", 512/3),
	} {
		require.NoError(t, checkStrength("anna.smith", good), good)
	}
}

// Rating takes milliseconds, whatever is typed. The bound leaves room for a busy machine.
func TestRatingIsQuick(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"4@8({[<369!|105$7+2", "1", "aB3$horse", "日本", "\U0001F600", "20261122"} {
		began := time.Now()
		_ = checkStrength("anna", strings.Repeat(pattern, MaxPassword/len(pattern)))
		require.Less(t, time.Since(began), 2*time.Second, pattern)
	}
}
