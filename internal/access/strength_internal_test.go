package access

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func TestCheckStrength(t *testing.T) {
	t.Parallel()
	for _, password := range []string{
		"password1234", "Password1234!", "P@ssw0rd2026!!", "passwordpassword", "changemechangeme", "letmein-welcome",
		"qwertyuiop12", "qwertyuiop[]asdf", "POIUYTREWQ12", "!@#$%^&*()_+", "zaq12wsxcde3",
		strings.Repeat("a", 64), strings.Repeat("a", MaxPassword),
		"abcabcabcabc", "abcdefghijklmnop",
		"zyxwvutsrqpo", "kq7!kq7!kq7!kq7!", "日本日本日本日本", "314159265358979323", "2026-11-22!!", "22.11.2026-Anna",
		"summerholiday2024",
		"passwordsummerholiday", "another password", "michael-jennifer",
		"anna.smith1990", "Anna.Smith1990!", "4nn4.$m1th.1990", "smithsmithsmith", "smith2026anna!",
		"postrider2026", "p0stR1der2026!", "P0str1der-@dm1n", "anna-postrider", "welcometopostrider",
	} {
		err := checkStrength("anna.smith", password)
		require.ErrorIs(t, err, postgres.ErrInvalid, password)
		require.ErrorContains(t, err, "password is too easy to guess: avoid names, common words, keyboard rows, "+
			"sequences and dates; use four or more unrelated words, or let a password manager create one", password)
	}
	for _, good := range []string{
		"correct horse battery staple", "correcthorsebatterystaple", "correct horse battery", "twelve horses at least",
		"xkq93mzp71lw", "kS8v0w1JrQ2ZbV5n", "grüne Äpfel fliegen nachts", "いろはにほへとちりぬるを",
		"twelve horses at least" + strings.Repeat("a", 1000),
	} {
		require.NoError(t, checkStrength("anna.smith", good), good)
	}
}

// Of the passwords that a password manager creates, hardly any is rejected.
func TestRandomPasswordsAreStrong(t *testing.T) {
	t.Parallel()
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	random := rand.New(rand.NewPCG(1, 2))
	rejected := 0
	for range 10_000 {
		password := make([]byte, MinPassword)
		for i := range password {
			password[i] = letters[random.IntN(len(letters))]
		}
		if checkStrength("anna.smith", string(password)) != nil {
			rejected++
		}
	}
	require.Less(t, rejected, 10)
}

func TestCommonPasswordsAreSortedAndFound(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSuffix(commonPasswords, "\n"), "\n")
	require.Greater(t, len(lines), 2500)
	require.True(t, slices.IsSorted(lines))
	require.Len(t, slices.Compact(slices.Clone(lines)), len(lines), "a line occurs twice")
	for _, line := range lines {
		require.Regexp(t, "^[a-z0-9]{4,12}$", line)
		require.True(t, isCommon(line), line)
		require.False(t, isCommon(line+"~"), line)
		require.False(t, isCommon("~"+line), line)
	}
	for _, word := range []string{"", "\n", "aaaa", "~", lines[0][1:], lines[0] + "\n" + lines[1]} {
		require.False(t, isCommon(word), word)
	}
}

// Rating any password takes milliseconds. Without its limits, this test would take hours.
func TestPasswordRatingIsBounded(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"4@8({[<369!|105$7+2", "1", "aB3$horse", "日本", "\U0001F600", "20261122"} {
		_ = checkStrength("anna", strings.Repeat(pattern, MaxPassword/len(pattern)))
	}
}
