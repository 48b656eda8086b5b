// Package brokers tests the clients of brokers against real servers in this process.
package brokers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/jobs/jetstream"
	"postrider/policy"
)

const (
	natsPatience = time.Minute
	natsPoll     = 10 * time.Millisecond
	natsStore    = "jetstream { store_dir: %q }\n"
)

var (
	natsFull     = policy.Result{Err: "full"}
	natsDisabled = policy.Result{Err: "disabled"}
	natsSocket   = policy.Result{Err: policy.ErrorSocket}
)

func natsStatus(status int) policy.Result { return policy.Result{Status: status} }

// natsServer starts a server with JetStream. Addresses and settings are in config.
func natsServer(t *testing.T, config string) *server.Server {
	t.Helper()
	if !strings.Contains(config, "store_dir") && !strings.Contains(config, "disabled") {
		config += fmt.Sprintf(natsStore, t.TempDir())
	}
	if !strings.Contains(config, "listen:") {
		config += "listen: 127.0.0.1:-1\n"
	}
	options := &server.Options{NoSigs: true, NoLog: true}
	require.NoError(t, options.ProcessConfigString(config))
	s, err := server.NewServer(options)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { natsStop(s) })
	require.True(t, s.ReadyForConnections(natsPatience))
	return s
}

func natsStop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// natsClient returns an administrator's connection. Options are credentials.
func natsClient(t *testing.T, s *server.Server, options ...nats.Option) (*nats.Conn, nats.JetStreamContext) {
	t.Helper()
	client, err := nats.Connect(s.ClientURL(), options...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	js, err := client.JetStream(nats.MaxWait(natsPatience))
	require.NoError(t, err)
	return client, js
}

func natsStream(t *testing.T, js nats.JetStreamContext, config nats.StreamConfig) {
	t.Helper()
	config.Storage = nats.MemoryStorage
	_, err := js.AddStream(&config)
	require.NoError(t, err)
}

// natsDialer counts the connections, and rejects addresses.
type natsDialer struct {
	dials  atomic.Int32
	reject atomic.Pointer[string]
	block  chan struct{}
	asked  chan struct{}
}

type natsRejectedError struct{ address string }

func (e natsRejectedError) Error() string { return "address " + e.address + " must not be called" }
func (natsRejectedError) Rejected() bool  { return true }

func (d *natsDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	if d.block != nil {
		select {
		case d.asked <- struct{}{}:
		default:
		}
		select {
		case <-d.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if rejected := d.reject.Load(); rejected != nil && *rejected == address {
		return nil, natsRejectedError{address}
	}
	return new(net.Dialer).DialContext(ctx, network, strings.Replace(address, "example.com", "127.0.0.1", 1))
}

func natsSender(t *testing.T, d *natsDialer, p destination.Properties, servers ...*server.Server) destination.Sender {
	t.Helper()
	for _, s := range servers {
		p.Servers = append(p.Servers, s.Addr().String())
	}
	p.Subject = cmp.Or(p.Subject, "events.a")
	sender, err := jetstream.Open(&p, destination.ClientOptions{Dial: d.dial, AckTimeout: natsPatience})
	require.NoError(t, err)
	t.Cleanup(sender.Close)
	return sender
}

func natsMessage(id string) *destination.Message {
	return &destination.Message{ID: id, Body: []byte(`{"id":"1"}`), ContentType: "application/json; charset=utf-8"}
}

func natsSend(t *testing.T, s destination.Sender, id string) destination.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natsPatience)
	defer cancel()
	return s.Send(ctx, natsMessage(id))
}

// natsRetry sends until the message is stored, as the engine does.
func natsRetry(t *testing.T, s destination.Sender, id string) {
	t.Helper()
	var result destination.Result
	require.Eventually(t, func() bool {
		result = natsSend(t, s, id)
		return result.Status == 200
	}, natsPatience, natsPoll, "%v", result)
}

func TestNATSMessageIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := natsServer(t, "")
	_, js := natsClient(t, s)
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	d := &natsDialer{}
	sender := natsSender(t, d, destination.Properties{Stream: "EVENTS"}, s)
	require.Zero(t, d.dials.Load(), "Open opens no connection")
	m := natsMessage("d1")
	m.Attributes = []destination.Attribute{{Name: "aeg-event-type", Value: "Notification"}, {Name: "tenantID", Value: "x"}}
	require.Equal(t, destination.Result{Result: natsStatus(200)}, sender.Send(t.Context(), m))
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d1").Result, "a duplicate is delivered")
	stored, err := js.GetMsg("EVENTS", 1)
	require.NoError(t, err)
	require.Equal(t, "events.a", stored.Subject)
	require.Equal(t, m.Body, stored.Data)
	require.Equal(t, nats.Header{
		"Nats-Msg-Id": {"d1"}, "Nats-Expected-Stream": {"EVENTS"}, "Content-Type": {m.ContentType},
		"aeg-event-type": {"Notification"}, "tenantID": {"x"},
	}, stored.Header)
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d1-2").Result, "a redelivery has another id")
	info, err := js.StreamInfo("EVENTS")
	require.NoError(t, err)
	require.EqualValues(t, 2, info.State.Msgs)
	require.Equal(t, natsStatus(200), sender.Check(t.Context()).Result)
	sender.Close()
	require.Equal(t, policy.ErrorCanceled, natsSend(t, sender, "d2").Err)
}

func TestNATSStreamsThatStoreNothing(t *testing.T) {
	t.Parallel()
	s := natsServer(t, "max_payload: 4096\n")
	client, js := natsClient(t, s)
	natsStream(t, js, nats.StreamConfig{Name: "PLAIN", Subjects: []string{"plain"}})
	natsStream(t, js, nats.StreamConfig{Name: "FULL", Subjects: []string{"full"}, MaxMsgs: 1, Discard: nats.DiscardNew})
	natsStream(t, js, nats.StreamConfig{Name: "SMALL", Subjects: []string{"small"}, MaxMsgSize: 10})
	natsStream(t, js, nats.StreamConfig{Name: "SEALED", Subjects: []string{"sealed"}})
	_, err := js.Publish("full", nil)
	require.NoError(t, err)
	_, err = js.UpdateStream(&nats.StreamConfig{
		Name: "SEALED", Subjects: []string{"sealed"}, Storage: nats.MemoryStorage, Sealed: true,
	})
	require.NoError(t, err)
	received := make(chan *nats.Msg, 1)
	_, err = client.ChanSubscribe("silent", received)
	require.NoError(t, err)
	_, err = client.Subscribe("chatty", func(m *nats.Msg) { _ = m.Respond([]byte("hello")) })
	require.NoError(t, err)
	require.NoError(t, client.Flush())
	large, one := strings.Repeat("x", 5000), 1
	type properties = destination.Properties
	ok, missing, wrong, tooLarge := natsStatus(200), natsStatus(404), natsStatus(400), natsStatus(413)
	for _, test := range []struct {
		name, value string
		p           properties
		send, look  policy.Result
		text        string
	}{
		{"no stream", "", properties{Subject: "none"}, missing, missing, "create a stream"},
		{"wrong stream", "", properties{Subject: "plain", Stream: "FULL"}, wrong, wrong, "10060"},
		{"full", "", properties{Subject: "full"}, natsFull, ok, "maximum messages exceeded"},
		{"sealed", "", properties{Subject: "sealed"}, natsDisabled, ok, "sealed"},
		{"maximum of the stream", "", properties{Subject: "small"}, tooLarge, ok, "10054"},
		{"maximum of the server", large, properties{Subject: "plain"}, tooLarge, ok, "is 4096 bytes"},
		{
			"own maximum", large[:1024],
			properties{Subject: "plain", MaxMessageSizeInKilobytes: &one},
			tooLarge, ok, "is 1024 bytes",
		},
		{"another responder", "", properties{Subject: "chatty"}, natsStatus(500), missing, "no acknowledgment"},
		{"nats-rollup", "all", properties{Subject: "plain"}, policy.Result{Err: policy.ErrorArgument}, ok, "reserved"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sender := natsSender(t, &natsDialer{}, test.p, s)
			m := natsMessage("d")
			m.Attributes = []destination.Attribute{{Name: strings.ReplaceAll(test.name, " ", "-"), Value: test.value}}
			result := sender.Send(t.Context(), m)
			require.Equal(t, test.send, result.Result, result.Text)
			require.Contains(t, result.Text, test.text)
			result = sender.Check(t.Context())
			require.Equal(t, test.look, result.Result, result.Text)
		})
	}
	t.Run("no acknowledgment", func(t *testing.T) {
		t.Parallel()
		sender := natsSender(t, &natsDialer{}, destination.Properties{Subject: "silent"}, s)
		for kind, cause := range map[policy.ErrorKind]error{
			policy.ErrorCanceled: context.Canceled, policy.ErrorTimeout: context.DeadlineExceeded,
		} {
			ctx := &natsContext{Context: t.Context(), done: make(chan struct{})}
			results := make(chan destination.Result, 1)
			go func() { results <- sender.Send(ctx, natsMessage("d")) }()
			<-received
			ctx.err.Store(&cause)
			close(ctx.done)
			result := <-results
			require.Equal(t, policy.Result{Err: kind}, result.Result, result.Text)
		}
	})
}

func TestNATSStreamThatIsGone(t *testing.T) {
	t.Parallel()
	s := natsServer(t, "")
	_, js := natsClient(t, s)
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	sender := natsSender(t, &natsDialer{}, destination.Properties{}, s)
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d1").Result)
	require.NoError(t, js.DeleteStream("EVENTS"))
	result := natsSend(t, sender, "d2")
	require.Equal(t, natsStatus(503), result.Result, "it may have no leader for a moment")
	require.Contains(t, result.Text, "no leader")
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d2").Result)
}

// natsContext ends when the test says so, also by its deadline.
type natsContext struct {
	context.Context //nolint:containedctx // it is one
	done            chan struct{}
	err             atomic.Pointer[error]
}

func (c *natsContext) Done() <-chan struct{} { return c.done }

func (c *natsContext) Err() error {
	if err := c.err.Load(); err != nil {
		return *err
	}
	return nil
}

func TestNATSWithoutJetStream(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"server":  "jetstream: disabled\n",
		"account": "accounts { A { users: [{user: u, password: p}] }, B { jetstream: enabled } }\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sender := natsSender(t, &natsDialer{}, destination.Properties{Username: "u", Password: "p"}, natsServer(t, config))
			require.Equal(t, natsStatus(404), natsSend(t, sender, "d").Result)
			result := sender.Check(t.Context())
			require.Equal(t, natsDisabled, result.Result, result.Text)
		})
	}
}

const natsUsers = `accounts { A {
	jetstream: enabled, users: [{user: admin, password: admin}, {user: u, password: %s}]
} }
`

func TestNATSCredentials(t *testing.T) {
	t.Parallel()
	store := fmt.Sprintf(natsStore, t.TempDir()) + "listen: 127.0.0.1:-1\n"
	s := natsServer(t, fmt.Sprintf(natsUsers, "old")+store)
	_, js := natsClient(t, s, nats.UserInfo("admin", "admin"))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	sender := natsSender(t, &natsDialer{}, destination.Properties{Username: "u", Password: "new-secret"}, s)
	for _, result := range []destination.Result{natsSend(t, sender, "d1"), sender.Check(t.Context())} {
		require.Equal(t, natsStatus(401), result.Result, result.Text)
		require.NotContains(t, result.Text, "secret")
	}
	reload := func(password string) {
		options := &server.Options{NoSigs: true, NoLog: true}
		require.NoError(t, options.ProcessConfigString(fmt.Sprintf(natsUsers, password)+store))
		require.NoError(t, s.ReloadOptions(options))
	}
	reload("new-secret")
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d1").Result, "the next attempt connects")
	reload("newest") // the server closes the connection
	require.Eventually(t, func() bool { return natsSend(t, sender, "d2").Status == 401 }, natsPatience, natsPoll)
	reload("new-secret")
	natsRetry(t, sender, "d2")

	token := natsServer(t, "authorization { token: t }\n")
	_, js = natsClient(t, token, nats.Token("t"))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	sender = natsSender(t, &natsDialer{}, destination.Properties{Password: "t"}, token)
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d").Result)
}

// natsOperator returns a configuration that trusts JWTs, and the text of a user's .creds file.
func natsOperator(t *testing.T) (config, creds string) {
	t.Helper()
	key := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := create()
		require.NoError(t, err)
		public, err := pair.PublicKey()
		require.NoError(t, err)
		return pair, public
	}
	operator, operatorID := key(nkeys.CreateOperator)
	account, accountID := key(nkeys.CreateAccount)
	user, userID := key(nkeys.CreateUser)
	operatorJWT, err := jwt.NewOperatorClaims(operatorID).Encode(operator)
	require.NoError(t, err)
	claims := jwt.NewAccountClaims(accountID)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := claims.Encode(operator)
	require.NoError(t, err)
	_, systemID := key(nkeys.CreateAccount)
	systemJWT, err := jwt.NewAccountClaims(systemID).Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(userID).Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	file, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nsystem_account: %s\nresolver_preload: { %s: %s, %s: %s }\n",
		operatorJWT, systemID, systemID, systemJWT, accountID, accountJWT), string(file)
}

func TestNATSCredentialsFile(t *testing.T) {
	t.Parallel()
	config, creds := natsOperator(t)
	s := natsServer(t, config)
	_, js := natsClient(t, s, nats.UserCredentialBytes([]byte(creds)))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	sender := natsSender(t, &natsDialer{}, destination.Properties{Credentials: creds}, s)
	require.Equal(t, natsStatus(200), natsSend(t, sender, "d").Result)
	_, other := natsOperator(t)
	sender = natsSender(t, &natsDialer{}, destination.Properties{Credentials: other}, s)
	require.Equal(t, natsStatus(401), natsSend(t, sender, "d").Result)
	_, err := jetstream.Open(&destination.Properties{Credentials: creds[:len(creds)/2]}, destination.ClientOptions{})
	require.ErrorContains(t, err, "must be the text of a .creds file")
}

// Violations arrive without a reference to the message. Without a deadline, only they can end these attempts.
func TestNATSPermissions(t *testing.T) {
	t.Parallel()
	s := natsServer(t, `accounts { A { jetstream: enabled, users: [
		{user: admin, password: p},
		{user: pub, password: p, permissions: {publish: {deny: [events.a]}}},
		{user: look, password: p, permissions: {publish: {allow: [events.a]}}},
		{user: inbox, password: p, permissions: {subscribe: {allow: [other]}}}] } }
`)
	_, js := natsClient(t, s, nats.UserInfo("admin", "p"))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	for user, want := range map[string][2]int{"pub": {403, 200}, "look": {200, 200}, "inbox": {403, 403}} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			sender := natsSender(t, &natsDialer{}, destination.Properties{Username: user, Password: "p"}, s)
			for range 2 {
				result := sender.Send(t.Context(), natsMessage("d"))
				require.Equal(t, natsStatus(want[0]), result.Result, result.Text)
				result = sender.Check(t.Context())
				require.Equal(t, natsStatus(want[1]), result.Result, result.Text)
			}
		})
	}
}
