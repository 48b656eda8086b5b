package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Each state of a rotation has its next step, as docs/operate/configure.md has them.
func TestKeyStatusNext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	used := func(id string) catalog.KeyInUse { return catalog.KeyInUse{KeyID: id} }
	retired := func(id string) catalog.KeyInUse { return catalog.KeyInUse{KeyID: id, RetiredAt: &now} }
	node := func(name string, ids ...string) catalog.NodeKeys { return catalog.NodeKeys{Node: name, KeyIDs: ids} }
	type keys []catalog.KeyInUse
	type nodes []catalog.NodeKeys
	for _, row := range []struct {
		keys  keys
		nodes nodes
		next  string
	}{
		{nil, nil, "No key is in use yet"},
		{keys{used("old")}, nil, "No node that delivers is running"},
		{keys{used("old")}, nodes{node("a", "old"), node("b")}, "Upgrade the nodes"},
		{keys{used("old")}, nodes{node("a", "old"), node("b", "old")}, "No rotation is in progress"},
		{keys{used("old")}, nodes{node("a", "old", "new"), node("b", "old")}, "Step 1: restart b with new in"},
		{keys{used("old")}, nodes{node("a", "old", "new"), node("b", "old", "new")}, "Step 2: restart each node with new as"},
		{
			keys{used("old"), used("new")},
			nodes{node("a", "new", "old"), node("b", "old", "new")},
			"Step 2: restart b with new as",
		},
		{
			keys{used("old"), used("new")},
			nodes{node("a", "new", "old"), node("b", "new", "old")},
			"Step 3: run `postrider keys rotate` with new as",
		},
		{keys{retired("old"), used("new")}, nodes{node("a", "new", "old"), node("b", "new")}, "Step 4: restart a without"},
		{keys{retired("old"), used("new")}, nodes{node("a", "old", "new")}, "Restart a with new as"},
		{keys{retired("old"), used("new")}, nodes{node("a", "new")}, "No rotation is in progress"},
	} {
		require.Contains(t, catalog.KeyStatus{Keys: row.keys, Nodes: row.nodes}.Next(), row.next)
	}
}
