package postgres_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

// FuzzParseKey: a key that is read is of 32 bytes, and no error repeats what was given.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{
		"", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "____", "c2hvcnQ=",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := postgres.ParseKey(text)
		if err == nil {
			require.Len(t, key, 32)
			return
		}
		if len(text) > len("openssl rand -base64 32") { // shorter ones may be words of the message
			require.NotContains(t, err.Error(), text)
		}
	})
}

// FuzzOpen: what was not sealed for this column with this key does not open.
func FuzzOpen(f *testing.F) {
	s, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Seal("a", "pl4nted"), 3)
	f.Add([]byte{}, 0)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1)
	genuine := s.Seal("a", "pl4nted")
	f.Fuzz(func(t *testing.T, sealed []byte, at int) {
		if text, err := s.Open("a", sealed); err == nil {
			require.Equal(t, "pl4nted", text)
		}
		_, err := s.Open("b", sealed)
		require.Error(t, err)
		forged := bytes.Clone(genuine)
		forged[uint(at)%uint(len(forged))] ^= byte(1 + uint(at)%255)
		_, err = s.Open("a", forged)
		require.Error(t, err)
		_, err = s.Open("a", forged[:uint(at)%uint(len(forged))])
		require.Error(t, err)
	})
}
