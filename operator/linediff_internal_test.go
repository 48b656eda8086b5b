package operator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffJSON(t *testing.T) {
	t.Parallel()
	before := []byte(`{"id":"e","data":{"a":1,"b":1e400,"c":[1,2],"d":4,"e":5,"f":6,"g":7}}`)
	after := []byte(`{"id":"e","data":{"a":1,"b":1e400,"c":[1,3],"d":4,"e":5,"f":6,"g":7,"h":8}}`)
	require.Equal(t, `@@ 4 equal lines @@
     "b": 1e400,
     "c": [
       1,
-      2
+      3
     ],
     "d": 4,
     "e": 5,
     "f": 6,
-    "g": 7
+    "g": 7,
+    "h": 8
   }
 }
`, DiffText(DiffJSON(before, after)))
	require.Equal(t, "-no JSON\n+neither\n", DiffText(DiffJSON([]byte("no JSON"), []byte("neither"))))
	require.Equal(t, "@@ 1 equal line @@\n", DiffText(DiffJSON([]byte("{}"), []byte("{ }"))))
}

// A text with very many changed lines is shown as replaced.
func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	list := func(format string) []byte {
		lines := make([]string, 30_000)
		for i := range lines {
			lines[i] = fmt.Sprintf(format, i)
		}
		return []byte("[" + strings.Join(lines, ",") + "]")
	}
	require.Len(t, DiffJSON(list("%d"), list("-1%d")), 60_002)
}
