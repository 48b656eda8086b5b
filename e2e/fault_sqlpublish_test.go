package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// applicationEnv names the database of which this binary is a user's application, instead of running tests.
const applicationEnv = "POSTRIDER_TEST_APPLICATION"

const (
	applicationClients = 6
	// applicationName names its sessions in pg_stat_activity.
	applicationName = "shop"
	// applicationTable has a row for each transaction that was committed, written in the transaction that publishes.
	applicationTable = "CREATE TABLE public.orders (id text PRIMARY KEY)"
)

var errChangedItsMind = errors.New("this one is rolled back")

// runApplication writes orders and publishes each in the same transaction, half of which it rolls back, until it is
// killed. For each transaction that has ended, well or not, it prints a line.
func runApplication(url string) int {
	var working sync.WaitGroup
	for range applicationClients {
		working.Go(func() {
			for {
				applicationSession(context.Background(), url)
				time.Sleep(20 * time.Millisecond) // the database is away
			}
		})
	}
	working.Wait()
	return 1
}

func applicationSession(ctx context.Context, url string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return
	}
	config.RuntimeParams["application_name"] = applicationName
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for {
		id := uuid.NewString()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return placeOrder(ctx, tx, id) })
		if err != nil && !errors.Is(err, errChangedItsMind) {
			return
		}
		fmt.Println(id)
	}
}

func placeOrder(ctx context.Context, tx pgx.Tx, id string) error {
	const publish = `SELECT postrider.publish('orders', jsonb_build_object('id', $1::text, 'source', '/shop', 'type',
		    'Shop.OrderPlaced'))`
	steps := []string{"INSERT INTO public.orders VALUES ($1)", publish}
	if rand.N(2) == 0 {
		steps = []string{publish, "INSERT INTO public.orders VALUES ($1)"}
	}
	for _, step := range steps {
		if _, err := tx.Exec(ctx, step, id); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
	}
	if rand.N(2) == 0 {
		return errChangedItsMind
	}
	return nil
}

// applicationRun is an application that is killed and started again, with the transactions that it has ended.
type applicationRun struct {
	*process
	before int
}

func startApplication(t *testing.T, db *database, before int) *applicationRun {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return &applicationRun{startProcess(t, []string{applicationEnv + "=" + db.url}, self), before}
}

func (a *applicationRun) ended() int {
	a.stdout.mu.Lock()
	defer a.stdout.mu.Unlock()
	return a.before + a.stdout.text.Len()/len("00000000-0000-0000-0000-000000000000\n")
}

// Exactly the committed events are delivered when the application (within a transaction), the service or PostgreSQL is
// killed.
func TestFaultPublishInTransactionsThatAreKilled(t *testing.T) {
	t.Parallel()
	transactions, kills := 600, 6
	if *faults {
		transactions, kills = 10_000, 40
	}
	server, db := ownCluster(t)
	sink := newGate(t)
	sink.open()
	n := startNode(t, db)
	n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	db.exec(applicationTable)
	app := startApplication(t, db, 0)
	killed := map[string]int{}
	for kill := range kills {
		least := transactions * (kill + 1) / (kills + 1)
		eventually(t, fmt.Sprintf("%d transactions", least), func() bool { return app.ended() >= least })
		switch kill % 3 {
		case 0:
			app.kill()
			app = startApplication(t, db, app.ended())
			killed["application"]++
		case 1:
			n.kill()
			n = startNode(t, db)
			killed["service"]++
		default:
			require.NoError(t, server.Kill())
			require.NoError(t, server.Restart(t.Context()))
			killed["PostgreSQL"]++
		}
	}
	eventually(t, "all transactions", func() bool { return app.ended() >= transactions })
	app.kill()

	// The database may still commit for one that is dead: what its sessions last said is nothing to go by, only that they
	// are gone.
	eventually(t, "the application's sessions have ended", func() bool {
		return one[int](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", applicationName) == 0
	})
	committed := one[[]string](db, "SELECT array_agg(id) FROM public.orders")
	eventually(t, "all that was committed has arrived", func() bool { return len(sink.arrivalsSoFar()) >= len(committed) })
	db.drained()
	require.ElementsMatch(t, committed, sink.arrivalsSoFar(), "delivered is what was committed")
	require.Equal(t, len(committed), one[int](db, "SELECT count(*) FROM postrider.events WHERE matched = 1"))
	require.Equal(t, len(committed),
		one[int](db, "SELECT count(DISTINCT delivery_id) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.Greater(t, app.ended()-len(committed), transactions/3, "rolled back")
	t.Logf("%d transactions, %d committed, %d delivered; killed %v", app.ended(), len(committed),
		len(sink.arrivalsSoFar()), killed)
}
