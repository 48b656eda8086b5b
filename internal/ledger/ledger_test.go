package ledger

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func entry(id, body string) Entry {
	if body == "" {
		return Entry{ID: id}
	}
	return Entry{ID: id, Hash: sha256.Sum256([]byte(body))}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	published := []Entry{entry("a", "A"), entry("b", "B"), entry("c", "")}
	for name, tc := range map[string]struct {
		received []Entry
		want     Verdict
	}{
		"everything arrived":   {[]Entry{entry("c", "C"), entry("b", "B"), entry("a", "A")}, Verdict{}},
		"an event was lost":    {[]Entry{entry("a", "A"), entry("c", "")}, Verdict{Lost: []string{"b"}}},
		"all were lost":        {nil, Verdict{Lost: []string{"a", "b", "c"}}},
		"an event was changed": {[]Entry{entry("a", "A"), entry("b", "b"), entry("c", "")}, Verdict{Changed: []string{"b"}}},
		"changed once of twice": {
			[]Entry{entry("a", "A"), entry("b", "B"), entry("b", "b"), entry("b", "b"), entry("c", "")},
			Verdict{Changed: []string{"b"}, Duplicates: 2},
		},
		"a duplicate hides no loss": {
			[]Entry{entry("a", "A"), entry("a", "A"), entry("c", "")}, Verdict{Lost: []string{"b"}, Duplicates: 1},
		},
		"an event whose 200 never came arrived": {
			[]Entry{entry("a", "A"), entry("b", "B"), entry("c", ""), entry("d", "D"), entry("d", "D")},
			Verdict{Unacknowledged: []string{"d"}, Duplicates: 1},
		},
		"the sink noted no bytes": {[]Entry{entry("a", ""), entry("b", ""), entry("c", "")}, Verdict{}},
	} {
		tc.want.Published, tc.want.Received = 3, len(tc.received)
		require.Equal(t, tc.want, Compare(published, tc.received), name)
	}
}

func TestLedgerRoundTrip(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	want := []Entry{
		entry("a", "A"), entry("an id with spaces", "B"), entry("a", ""), entry("é-"+strings.Repeat("x", 1000), "C"),
	}
	for _, part := range [][]Entry{want[:2], want[2:]} { // opened again, as after a restart
		ledger, err := Open(path)
		require.NoError(t, err)
		for i, e := range part {
			require.NoError(t, ledger.Note(e.ID, e.Hash))
			got, err := Read(path)
			require.NoError(t, err)
			require.Equal(t, part[i], got[len(got)-1], "on file before Note returned: the publisher may be killed next")
		}
		require.NoError(t, ledger.Close())
	}
	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	ledger, err := Create(path)
	require.NoError(t, err)
	for range 2000 { // more than a block
		require.NoError(t, ledger.Note("a", sha256.Sum256(nil)))
	}
	require.NoError(t, ledger.Close())
	got, err := Read(path)
	require.NoError(t, err)
	require.Len(t, got, 2000)
	require.ErrorIs(t, ledger.Note("b", Hash{}), os.ErrClosed)
}

func TestRead(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0a", sha256.Size)
	for name, tc := range map[string]struct {
		content string
		ids     []string
		fails   string
	}{
		"empty":                               {"", nil, ""},
		"a last line that was not completed":  {"a -\nb " + hash[:10], []string{"a"}, ""},
		"a last line without its end":         {"a -\nb -", []string{"a"}, ""},
		"a broken line before others":         {"a -\nb " + hash[:10] + "\nc -\n", nil, "line 2"},
		"a line without a hash":               {"a\n", nil, "line 1"},
		"a line without an id":                {" -\n", nil, "line 1"},
		"a hash that is not hexadecimal":      {"a " + strings.Repeat("zz", sha256.Size) + "\n", nil, "line 1"},
		"an id that ends in a space and dash": {"a - -\n", []string{"a -"}, ""},
	} {
		path := filepath.Join(t.TempDir(), "ledger")
		require.NoError(t, os.WriteFile(path, []byte(tc.content), 0o600))
		got, err := Read(path)
		if tc.fails != "" {
			require.ErrorContains(t, err, tc.fails, name)
			continue
		}
		require.NoError(t, err, name)
		var ids []string
		for _, e := range got {
			ids = append(ids, e.ID)
		}
		require.Equal(t, tc.ids, ids, name)
	}
	_, err := Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestLedgerThatCannotWrite(t *testing.T) {
	t.Parallel()
	ledger, err := Open(filepath.Join(t.TempDir(), "ledger"))
	require.NoError(t, err)
	require.NoError(t, ledger.file.Close()) // as a disk that fails under it
	first := ledger.Note("a", Hash{})
	require.Error(t, first)
	require.Equal(t, first, ledger.Note("b", Hash{}), "a ledger with a hole proves nothing: the failure stays")
	require.Error(t, ledger.Close())
	_, err = Open(t.TempDir())
	require.Error(t, err, "a folder")
}
