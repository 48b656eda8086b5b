package auth

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Rejecting a key takes as long whether its first or its last byte is wrong. The limit allows for a busy machine.
func TestWrongKeysTakeTheSameTime(t *testing.T) {
	t.Parallel()
	const key = "cG9zdHJpZGVyLWEta2V5LWZvci1hLXRlc3Qtb2YtdGltZSE="
	sum, other := DigestOf(key), DigestOf("another")
	topic := &catalog.Topic{Key1Hash: sum[:], Key2Hash: other[:]}
	median := func(shown string) time.Duration {
		took := make([]time.Duration, 501)
		for i := range took {
			began := time.Now()
			for range 40 {
				c := Credential{Digest: DigestOf(shown)}
				if c.Opens(topic) {
					t.Fatal("it is wrong")
				}
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	best := 10.0
	for range 5 {
		early, late := median("X"+key[1:]), median(key[:len(key)-1]+"X")
		best = min(best, max(float64(early)/float64(late), float64(late)/float64(early)))
	}
	require.Less(t, best, 1.5)
}
