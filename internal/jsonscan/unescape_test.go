package jsonscan

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestUnescape(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, raw, want string
		lone            bool
	}{
		{"plain", `abc`, "abc", false},
		{"empty", ``, "", false},
		{"every short escape", `\"\\\/\b\f\n\r\t`, "\"\\/\b\f\n\r\t", false},
		{"escapes at both ends", `\u0061bc\u0064`, "abcd", false},
		{"upper and lower hexadecimal", `\u00E9\u00e9`, "éé", false},
		{"NUL", `a\u0000b`, "a\x00b", false},
		{"surrogate pair", `\ud83d\ude00`, "😀", false},
		{"replacement character", `\ufffd`, "\ufffd", false},
		{"lone high half", `a\ud83d`, "a\ufffd", true},
		{"lone low half", `\ude00b`, "\ufffdb", true},
		{"halves the wrong way round", `\ude00\ud83d`, "\ufffd\ufffd", true},
		{"high half before another escape", `\ud83d\n`, "\ufffd\n", true},
		{"high half before a plain unicode escape", `\ud83d\u0061`, "\ufffda", true},
		{"high half before a letter in place of the backslash", `\ud83dxude00`, "\ufffdxude00", true},
		{"high half before a pair", `\ud83d\ud83d\ude00`, "\ufffd😀", true},
	} {
		got, lone := Unescape([]byte(c.raw))
		require.Equal(t, c.want, string(got), c.name)
		require.Equal(t, c.lone, lone, c.name)
	}
}

// FuzzUnescape: both decode every string that encoding/json accepts to the same text.
func FuzzUnescape(f *testing.F) {
	f.Add(`\"\\\/\b\f\n\r\t`)
	f.Add(`\ud83d\ude00\ud83d`)
	f.Add(`plain`)
	f.Fuzz(func(t *testing.T, raw string) {
		quoted := []byte(`"` + raw + `"`)
		var want string
		if !utf8.ValidString(raw) || json.Unmarshal(quoted, &want) != nil {
			t.Skip()
		}
		got, _ := Unescape([]byte(raw))
		require.Equal(t, want, string(got))
	})
}
