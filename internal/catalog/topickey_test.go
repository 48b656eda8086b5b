package catalog_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/publish"

	"github.com/stretchr/testify/require"
)

func withKey(prefix, key string) publish.Publication {
	sum := sha256.Sum256([]byte(key))
	p := testnode.Publication("orders", prefix, 1)
	p.Authorize = func(topic *catalog.Topic) bool {
		return string(topic.Key1Hash) == string(sum[:]) || string(topic.Key2Hash) == string(sum[:])
	}
	return p
}

// Many wrong keys share the reads of the database, and do not hide a key that another node has just created.
func TestWrongKeysShareCatalogReads(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	other := tn.Beside(t, node.Options{Node: "node-2"})
	before := other.Pool.Stat().AcquireCount()
	const guesses = 2000
	var group sync.WaitGroup
	for range guesses {
		group.Go(func() {
			_, err := other.System.Publisher.Publish(t.Context(), withKey("guess", "wrong"))
			if !errors.Is(err, publish.ErrUnauthorized) {
				t.Errorf("a wrong key: %v", err)
			}
		})
	}
	for i := range 4 {
		old, err := tn.System.Topics.Keys(t.Context(), "orders")
		require.NoError(t, err)
		keys := &catalog.AccessKeys{Key1: fmt.Sprint("own-", i), Key2: old.Key2}
		if i%2 == 0 {
			keys, err = tn.System.Topics.RegenerateKey(t.Context(), "orders", catalog.Key1)
			require.NoError(t, err)
		} else {
			require.NoError(t, tn.System.Topics.SetKeys(t.Context(), "orders", *keys))
		}
		_, err = other.System.Publisher.Publish(t.Context(), withKey(fmt.Sprintf("new-%d", i), keys.Key1))
		require.NoError(t, err, "the new key, at once")
		_, err = other.System.Publisher.Publish(t.Context(), withKey(fmt.Sprintf("old-%d", i), old.Key1))
		require.ErrorIs(t, err, publish.ErrUnauthorized)
	}
	group.Wait()
	require.Less(t, other.Pool.Stat().AcquireCount()-before, int64(guesses/4))
}

func TestRegenerateTopicKey(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	given := catalog.AccessKeys{Key1: "one", Key2: "two"}
	tn.PutTopic(t, "orders", catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &given})
	keys, err := tn.System.Topics.Keys(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, &given, keys)
	keys, err = tn.System.Topics.RegenerateKey(t.Context(), "orders", catalog.Key2)
	require.NoError(t, err)
	require.Equal(t, "one", keys.Key1)
	raw, err := base64.StdEncoding.DecodeString(keys.Key2)
	require.NoError(t, err)
	require.Len(t, raw, 32)

	require.ErrorContains(t, testnode.ErrorOf(tn.System.Topics.RegenerateKey(t.Context(), "orders", "key3")), "key3")
	again, err := tn.System.Topics.Keys(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, keys, again, "nothing half-written")
	_, err = tn.System.Topics.RegenerateKey(t.Context(), "never", catalog.Key1)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Topics.Keys(t.Context(), "never")), postgres.ErrNotFound)
	require.ErrorIs(t, tn.System.Topics.SetKeys(t.Context(), "never", given), postgres.ErrNotFound)
}

func TestSigned(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	keys, err := tn.System.Topics.Keys(t.Context(), "orders")
	require.NoError(t, err)
	topic, err := tn.System.Topics.Get(t.Context(), "orders")
	require.NoError(t, err)
	for name, key := range map[string]string{"key1": keys.Key1, "key2": keys.Key2} {
		h := hmac.New(sha256.New, catalog.SigningKey(key))
		h.Write([]byte("text"))
		require.True(t, topic.Signed("text", h.Sum(nil)), name)
		require.False(t, topic.Signed("texts", h.Sum(nil)), name)
		require.False(t, topic.Signed("text", h.Sum(nil)[:31]), name)
		shown := fmt.Sprintf("%+v %#v", topic, topic)
		require.NotContains(t, shown, key, "after it was opened")
		require.NotContains(t, shown, fmt.Sprintf("%d", catalog.SigningKey(key)), "nor as bytes")
	}
	require.False(t, topic.Signed("text", nil))
}

// A row that was copied from elsewhere is sealed with another key. A client with its key may publish; what it signed is
// rejected.
func TestKeysSealedWithAnotherKeySignNothing(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, "UPDATE postrider_internal.topics SET key1_sealed = set_byte(key1_sealed, 5, 7), key2_sealed = 'x'")
	topic, err := tn.System.Topics.Get(t.Context(), "orders")
	require.NoError(t, err, "topics can be read")
	require.False(t, topic.Signed("text", make([]byte, 32)))
	require.ErrorContains(t, testnode.ErrorOf(tn.System.Topics.Keys(t.Context(), "orders")), "sealed")
}
