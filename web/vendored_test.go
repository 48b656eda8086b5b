package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Vendored files have known hashes. Compare a new version with its project's release before you change a hash here.
func TestVendoredFilesAreUnchanged(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"static/htmx.min.js":   "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
		"static/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"static/uPlot.min.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	} {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		sum := sha256.Sum256(content)
		require.Equal(t, want, hex.EncodeToString(sum[:]), name)
	}
}
