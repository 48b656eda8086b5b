package display

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

func filterWith(name, value string) *Filter { return FilterOfForm(url.Values{name: {value}}) }

func TestDecodeKeyReadsEncodeKey(t *testing.T) {
	t.Parallel()
	want := query.DeadLetterPlace{
		DeadLetteredAt: time.Date(2026, 1, 31, 9, 30, 15, 123_456_000, time.UTC),
		DeadLetterID:   uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"),
	}
	got := decodeKey[query.DeadLetterPlace](filterWith("before", EncodeKey(want)), "before")
	require.NotNil(t, got)
	require.Equal(t, want, *got)
}

// A key is rejected or has exactly one spelling.
func FuzzDecodeKey(f *testing.F) {
	for _, seed := range []string{
		"", "AAAA", strings.Repeat("A", 32), strings.Repeat("_", 32), EncodeKey("orders\x00"),
		EncodeKey(query.DeadLetterPlace{DeadLetteredAt: time.Unix(1, 0)}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter := filterWith("before", text)
		if key := decodeKey[query.DeadLetterPlace](filter, "before"); key != nil {
			require.NoError(t, filter.Err)
			require.Equal(t, text, EncodeKey(*key))
		} else if text != "" {
			require.ErrorIs(t, filter.Err, ErrQuery)
		}
		if name := decodeKey[string](filterWith("before", text), "before"); name != nil {
			require.NotContains(t, *name, "\x00")
		}
	})
}

func TestFilterSQL(t *testing.T) {
	t.Parallel()
	const order = "dead_lettered_at desc, dead_letter_id desc"
	empty := FilterOfForm(nil)
	require.Empty(t, empty.SQL())
	empty.View, empty.Order = "dead_letters", order
	empty.Name("Topic", "topic", "topic = ?")
	require.Equal(t, "select * from postrider.dead_letters\n order by "+order+" limit 50", empty.SQL())
	require.False(t, empty.Set)
	f := FilterOfForm(url.Values{"topic": {"a'; drop table x; --"}, "status": {"0"}, "from": {"2026-01-31"}})
	f.View, f.Order = "dead_letters", order
	f.Name("Topic", "topic", "topic = ?")
	f.Number("", "status", "last_status is null")
	f.Time("From (UTC)", "from", "dead_lettered_at >= ?")
	require.Equal(t, "select * from postrider.dead_letters\n where topic = 'a''; drop table x; --'\n   and last_status "+
		"is null\n   and dead_lettered_at >= '2026-01-31 00:00:00Z'\n order by "+order+" limit 50",
		f.SQL())
	require.True(t, f.Set)
}
