package display

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/query"
)

func TestPlaceOfADeadLetterComesBackAsItWas(t *testing.T) {
	t.Parallel()
	want := query.DeadLetterPlace{
		DeadLetteredAt: time.Date(2026, 1, 31, 9, 30, 15, 123_456_000, time.UTC),
		DeadLetterID:   uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"),
	}
	got, ok := ParseDeadLetterPlace(DeadLetterPlace(want))
	require.True(t, ok)
	require.Equal(t, want, got)
}

// A place is either refused or one that PostgreSQL can hold, with one spelling.
func FuzzParseDeadLetterPlace(f *testing.F) {
	for _, seed := range []string{"", "AAAA", strings.Repeat("A", 32), strings.Repeat("_", 32), DeadLetterPlace(
		query.DeadLetterPlace{DeadLetteredAt: time.Unix(1, 0)})} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, ok := ParseDeadLetterPlace(text); ok {
			require.Equal(t, text, DeadLetterPlace(key))
			require.False(t, key.DeadLetteredAt.Year() < 1970 || key.DeadLetteredAt.Year() > lastYear)
		}
	})
}
