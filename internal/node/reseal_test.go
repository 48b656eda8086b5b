package node_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func sealer(t *testing.T, key []byte, also ...[]byte) *postgres.Sealer {
	t.Helper()
	s, err := postgres.NewSealer(key, also...)
	require.NoError(t, err)
	return s
}

func withSecrets(n int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.Signing.Enabled = fmt.Sprintf("https://example.com/hook?code=%d", n), true
		s.DeliveryAttributes = []endpointconf.DeliveryAttribute{
			{Name: "X-A", Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{
				Value: new("secret"), IsSecret: true,
			}},
		}
		s.Connection = endpointconf.Connection{
			OAuth2: &endpointconf.OAuth2{TokenURL: "https://login.example.com", ClientID: "a", ClientSecret: "planted"},
		}
	}
}

// A rotation goes through every row in steps while others change them, and what was sealed says the same afterwards.
func TestRotateKeys(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	require.NoError(t, catalog.CheckKey(t.Context(), tn.Pool, sealer(t, testnode.Key)))
	topic := tn.Topic(t, "orders")
	const subscriptions = 230 // more than two steps
	sub := tn.Subscribe(t, "orders", "s000", withSecrets(0))
	tn.CopySubscription(t, sub.ID, `jsonb_build_object('id', 1000 + i, 'name', 's' || lpad(i::text, 3, '0'))`,
		subscriptions-1)
	s := testnode.SubscriptionSpec()
	_, err := tn.System.Handshakes.BeginValidation(t.Context(), topic, "s000", &s, "https://events.example.com")
	require.NoError(t, err)

	rotating := sealer(t, testnode.OtherKey, testnode.Key)
	require.NoError(t, catalog.CheckKey(t.Context(), tn.Pool, rotating))
	pool, err := postgres.OpenPool(t.Context(), tn.URL, 8)
	require.NoError(t, err)
	defer pool.Close()
	behind, err := node.New(t.Context(), node.Options{
		Pool: pool, Sealer: sealer(t, testnode.Key, testnode.OtherKey),
		Node: "behind",
	})
	require.NoError(t, err)
	var changing sync.WaitGroup
	changed := 0
	changing.Go(func() { // by a node that still seals with the old key, until it is rejected
		for n := 0; ; n++ {
			spec := testnode.SubscriptionSpec()
			withSecrets(n % subscriptions)(&spec)
			spec.Labels = []string{fmt.Sprint(n)}
			if _, _, err := behind.Subscriptions.Put(t.Context(), "orders", fmt.Sprintf("s%03d", n%subscriptions),
				spec); err != nil {
				if n == 0 || !retired(err) {
					t.Errorf("change %d: %v", n, err)
				}
				return
			}
			changed++
		}
	})
	rows := map[string]int{}
	gone, err := catalog.RotateKeys(t.Context(), tn.Pool, rotating, func(table string, n int) { rows[table] += n })
	require.NoError(t, err)
	require.Equal(t, []string{sealer(t, testnode.Key).KeyID()}, gone)
	changing.Wait()
	require.GreaterOrEqual(t, rows["event_subscriptions"], subscriptions)
	require.Equal(t, 1, rows["handshakes"])

	fresh := sealer(t, testnode.OtherKey)
	require.NoError(t, catalog.CheckKey(t.Context(), tn.Pool, fresh))
	other, err := node.New(t.Context(), node.Options{Pool: pool, Sealer: fresh, Node: "after"})
	require.NoError(t, err)
	for n := range subscriptions {
		sub, err := other.Subscriptions.Get(t.Context(), "orders", fmt.Sprintf("s%03d", n))
		require.NoError(t, err)
		code := 0 // as copied
		if n < changed {
			code = n
		}
		require.Equal(t, fmt.Sprint("https://example.com/hook?code=", code), sub.EndpointURL)
		require.Equal(t, "secret", *sub.DeliveryAttributes[0].Value)
		require.Equal(t, "planted", sub.Connection.OAuth2.ClientSecret)
		require.Len(t, sub.SigningKeys.Secrets, 1)
	}
	require.ErrorContains(t, catalog.CheckKey(t.Context(), tn.Pool, sealer(t, testnode.Key)), "is retired")
	require.ErrorContains(t, catalog.CheckKey(t.Context(), tn.Pool, sealer(t, []byte("00000000000000000000000000000000"))),
		"another encryption key")
}

func retired(err error) bool {
	return strings.Contains(err.Error(), "is retired: nothing may be sealed with it")
}

// Every sealed column is one that a rotation knows of.
func TestEverySealedColumnIsRotated(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	rows, err := tn.Pool.Query(t.Context(), `SELECT c.table_name || '.' || c.column_name FROM information_schema.columns c
		WHERE c.table_schema = 'postrider_internal'
		AND c.column_name LIKE '%\_sealed' AND c.table_name <> 'encryption_keys' ORDER BY 1`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, catalog.SealedColumns(), columns)
	for _, column := range columns { // and one whose retired keys are rejected
		require.NotZero(t, tn.Count(t, `SELECT count(*) FROM pg_trigger WHERE tgname = 'reject_retired_keys'
			    AND tgrelid::regclass::text = 'postrider_internal.' || split_part($1, '.', 1)
			AND pg_get_triggerdef(oid) LIKE '%''' || split_part($1, '.', 2) || '''%'`, column), column)
	}
}
