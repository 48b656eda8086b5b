package brokers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/jobs/jetstream"
	"postrider/policy"
)

func TestNATSServerRestarts(t *testing.T) {
	t.Parallel()
	store := fmt.Sprintf(natsStore, t.TempDir())
	s := natsServer(t, store)
	client, js := natsClient(t, s)
	_, err := js.AddStream(&nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.a"}})
	require.NoError(t, err)
	received := make(chan *nats.Msg, 1)
	_, err = client.ChanSubscribe("silent", received)
	require.NoError(t, err)
	require.NoError(t, client.Flush())
	d := &natsDialer{}
	sender := natsSender(t, d, destination.Properties{}, s)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if result := natsSend(t, sender, fmt.Sprint("first", i)); result.Status != 200 {
				t.Errorf("%d: %+v", i, result)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, d.dials.Load(), "concurrent attempts share one connection")
	address := s.Addr().String()
	fresh := natsSender(t, &natsDialer{}, destination.Properties{}, s)
	inFlight := natsSender(t, &natsDialer{}, destination.Properties{Subject: "silent"}, s)
	results := make(chan destination.Result, 1)
	go func() { results <- inFlight.Send(t.Context(), natsMessage("d")) }()
	<-received
	client.Close()
	natsStop(s)
	result := <-results
	require.Equal(t, natsSocket, result.Result, "the acknowledgment cannot arrive: %s", result.Text)
	result = sender.Send(t.Context(), natsMessage("second"))
	require.Equal(t, natsSocket, result.Result, result.Text)
	result = fresh.Send(t.Context(), natsMessage("second"))
	require.Equal(t, natsSocket, result.Result, result.Text)
	require.Contains(t, result.Text, "no connection to "+address+": connection refused")

	again := natsServer(t, store+"listen: "+address+"\n")
	natsRetry(t, sender, "second")
	natsRetry(t, fresh, "third")
	_, js = natsClient(t, again)
	info, err := js.StreamInfo("EVENTS")
	require.NoError(t, err)
	require.EqualValues(t, 22, info.State.Msgs)
}

// An attempt ends in time, and the connection that it opened serves the next one.
func TestNATSServerThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	s := natsServer(t, "")
	_, js := natsClient(t, s)
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	d := &natsDialer{block: make(chan struct{}), asked: make(chan struct{}, 1)}
	sender := natsSender(t, d, destination.Properties{}, s)
	ctx := &natsContext{Context: t.Context(), done: make(chan struct{})}
	results := make(chan destination.Result, 1)
	go func() { results <- sender.Send(ctx, natsMessage("d")) }()
	<-d.asked
	ctx.err.Store(new(context.DeadlineExceeded))
	close(ctx.done)
	require.Equal(t, policy.ErrorTimeout, (<-results).Err)
	close(d.block)
	natsRetry(t, sender, "d")
	require.EqualValues(t, 1, d.dials.Load(), "the connection that an earlier attempt opened is used")
}

// natsCluster starts servers that know each other.
func natsCluster(t *testing.T, size int) []*server.Server {
	t.Helper()
	routes, ports := "", make([]string, size)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = l.Addr().String()
		routes += fmt.Sprintf("%q, ", "nats://"+ports[i])
		defer l.Close()
		require.NoError(t, l.Close())
	}
	servers := make([]*server.Server, size)
	for i, address := range ports {
		servers[i] = natsServer(t, fmt.Sprintf(`listen: 127.0.0.1:-1
server_name: s%d
cluster { name: c, listen: %q, pool_size: -1, routes: [%s] }
`, i, address, routes))
	}
	require.Eventually(t, func() bool {
		for _, s := range servers {
			if s.NumRoutes() != size-1 {
				return false
			}
		}
		return true
	}, natsPatience, natsPoll)
	return servers
}

func TestNATSServerThatTheClusterNamesIsChecked(t *testing.T) {
	t.Parallel()
	servers := natsCluster(t, 2)
	d := &natsDialer{}
	named := servers[1].Addr().String()
	d.reject.Store(&named)
	rejected := natsSender(t, d, destination.Properties{}, servers[1])
	result := natsSend(t, rejected, "d")
	require.Equal(t, policy.Result{Err: policy.ErrorArgument}, result.Result, result.Text)
	sender := natsSender(t, d, destination.Properties{}, servers[0])
	require.Equal(t, natsStatus(404), natsSend(t, sender, "d").Result)
	natsStop(servers[0])
	require.Eventually(t, func() bool {
		result = natsSend(t, sender, "d")
		require.Equal(t, natsSocket, result.Result, result.Text)
		var rejection destination.AddressRejection
		return errors.As(result.Cause, &rejection) && strings.Contains(result.Text, "must not be called")
	}, natsPatience, natsPoll)
}

func TestNATSTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate()) // it is for example.com and 127.0.0.1
	options := &server.Options{
		NoSigs: true, NoLog: true, TLS: true, JetStream: true, StoreDir: t.TempDir(), Port: -1, Host: "127.0.0.1",
	}
	options.TLSConfig = &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}
	s, err := server.NewServer(options)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { natsStop(s) })
	require.True(t, s.ReadyForConnections(natsPatience))
	_, js := natsClient(t, s, nats.Secure(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	plain := natsServer(t, "")
	port := s.Addr().(*net.TCPAddr).Port
	for _, test := range []struct {
		name, address string
		roots         *x509.CertPool
		want          policy.Result
		text          string
	}{
		{"trusted", fmt.Sprintf("example.com:%d", port), roots, natsStatus(200), ""},
		{"other name", fmt.Sprintf("localhost:%d", port), roots, natsSocket, "not trusted"},
		{"other authority", fmt.Sprintf("example.com:%d", port), x509.NewCertPool(), natsSocket, "not trusted"},
		{"server without TLS", plain.Addr().String(), roots, natsSocket, "set tls to false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sender, err := jetstream.Open(&destination.Properties{Servers: []string{test.address}, Subject: "events.a"},
				destination.ClientOptions{
					Dial: new(natsDialer).dial, TLS: &tls.Config{RootCAs: test.roots, MinVersion: tls.VersionTLS12},
				})
			require.NoError(t, err)
			defer sender.Close()
			result := natsSend(t, sender, "d")
			require.Equal(t, test.want, result.Result, result.Text)
			require.Contains(t, result.Text, test.text)
		})
	}
}

func TestNATSClusterLosesItsLeader(t *testing.T) {
	t.Parallel()
	servers := natsCluster(t, 3)
	_, js := natsClient(t, servers[0])
	require.Eventually(t, func() bool { // without a leader, the cluster does not respond
		_, err := js.AddStream(&nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}, Replicas: 3},
			nats.MaxWait(time.Second))
		return err == nil
	}, natsPatience, natsPoll)
	info, err := js.StreamInfo("EVENTS")
	require.NoError(t, err)
	leader, survivor := -1, -1
	for i, s := range servers {
		if s.Name() == info.Cluster.Leader {
			leader = i
		} else {
			survivor = i
		}
	}
	require.GreaterOrEqual(t, leader, 0)
	sender := natsSender(t, &natsDialer{}, destination.Properties{}, servers...)
	const workers, each = 4, 100
	var stored atomic.Int32
	half := make(chan struct{})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				for ctx := t.Context(); ctx.Err() == nil; {
					attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
					result := sender.Send(attempt, natsMessage(fmt.Sprint(w, "-", i)))
					cancel()
					if result.Status == 200 {
						break
					}
				}
				if stored.Add(1) == workers*each/2 {
					close(half)
				}
			}
		})
	}
	<-half
	natsStop(servers[leader])
	all.Wait()
	_, js = natsClient(t, servers[survivor])
	require.Eventually(t, func() bool {
		info, err = js.StreamInfo("EVENTS", nats.MaxWait(time.Second))
		return err == nil
	}, natsPatience, natsPoll)
	require.EqualValues(t, workers*each, info.State.Msgs, "no message is lost, none is stored twice")
}
